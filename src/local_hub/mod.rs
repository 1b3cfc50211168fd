//! The Hub's bucket API and a content-addressed store in one process, for tests and demos without a
//! network.
//!
//! [`LocalHub`] speaks what the Hub speaks, well enough for clients that know nothing of it: the
//! Python `huggingface_hub`, OpenDAL's `hf` service, the `hf-hub` crate. Beyond the Hub it counts
//! requests ([`LocalHub::requests`]), breaks on demand ([`LocalHub::inject`]), enforces a plan's limits
//! ([`LocalHubBuilder::with_plan`]) and lets tests move its clock ([`LocalHub::advance`]).
//!
//! What it does not do: events (`GET …/events`), repositories other than buckets, the S3 gateway.
//!
//! | Room | What is there |
//! |---|---|
//! | `builder`, `server` | how it starts and stops |
//! | `routes` | the Hub's routes |
//! | `guard` | counts, limits and faults, before every route |
//! | `cas`, `content` | the store of bytes: xet's simulation server behind a proxy, and direct reads |
//! | `hub`, `state`, `persist` | what it holds, in memory and on disk |
//! | `auth`, `signing` | tokens and rights, signed URLs |
//! | `answer`, `extract` | refusals, and what routes read, in the Hub's form |
//! | `requests`, `faults`, `limiter`, `clock` | what tests look at and turn |

mod answer;
mod auth;
mod builder;
mod cas;
mod clock;
mod connection;
mod content;
mod extract;
mod faults;
mod guard;
mod hub;
mod limiter;
mod persist;
mod requests;
mod routes;
mod server;
mod signing;
mod state;
mod truncate;

pub use self::auth::TokenGrant;
pub use self::builder::{LocalHubBuilder, StartError};
pub use self::faults::Fault;
pub use self::limiter::Plan;
pub use self::requests::{Class, Requests};
pub use self::server::LocalHub;
