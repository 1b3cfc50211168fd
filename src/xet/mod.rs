//! Bytes to and from the CAS, through one `hf-xet` session.
//!
//! - [`Xet`]: the session, its CAS tokens, its download group.
//! - [`upload`]: whole objects in one commit, or one object part by part.
//! - [`download`]: a byte range as a stream that counts what arrives.

mod commit;
mod download;
mod error;
mod session;
mod size;
mod token;
mod upload;

pub(crate) use error::Error;
pub(crate) use session::{Xet, XetOptions};
pub(crate) use upload::Upload;

/// One content of the CAS: what `addFile` registers and a download asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct XetFile {
    /// 64 hex digits.
    pub(crate) hash: String,
    /// Bytes.
    pub(crate) size: u64,
}
