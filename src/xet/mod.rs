//! Bytes to and from the CAS, through one `hf-xet` session.
