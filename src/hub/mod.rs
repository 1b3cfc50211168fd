//! The Hub's REST API for buckets: requests, wire types, retries, rate limits, paging.
//!
//! [`HubClient`] is the only way in. It knows nothing of `object_store` nor of Xet's bytes: it
//! creates buckets, lists and describes what they hold, changes their entries in batches, hands out
//! tokens for the CAS, and downloads over plain HTTP.
//!
//! | Room | What is there |
//! |---|---|
//! | `types` | what callers give and get |
//! | `client` | one method per route |
//! | `batch` | planning a batch and settling its report per path |
//! | `for_xet` | what the CAS client needs besides tokens |
//! | `download` | plain HTTP downloads that count their bytes |
//! | `call`, `send` | one call: its description, and its way over the wire |
//! | `retry`, `rate_limit` | when to send again, and how long to wait |
//! | `budget` | the requests that a token has left, shared by all clients of the process |
//! | `describe` | what `resolve` says of a file, in any of its forms |
//! | `redirect`, `link` | where a redirect or a next page may lead |
//! | `reply` | what an answer says, above all a refusal |
//! | `auth` | tokens, where they come from |
//! | `wire` | the JSON of each route |
//! | `error` | one error, with a kind |

mod auth;
mod batch;
mod budget;
mod call;
mod client;
mod describe;
mod download;
mod error;
mod for_xet;
mod link;
mod rate_limit;
mod redirect;
mod reply;
mod retry;
mod send;
mod types;
mod wire;

#[cfg(test)]
mod tests;

pub(crate) use auth::{Secret, StaticToken, TokenSource, implicit_token, is_truthy};
pub(crate) use client::{HubClient, HubConfig};
pub(crate) use error::{Error, ErrorKind};
pub(crate) use retry::RetryPolicy;
pub(crate) use types::{
    Access, BatchOp, BucketId, CasToken, CreateBucket, Created, ItemKind, TreeItem,
};

type Result<T, E = Error> = std::result::Result<T, E>;
