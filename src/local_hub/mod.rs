//! The Hub's bucket API and a CAS in one process, for tests and demos without a network.
