//! The L2 adapter over every kind of store: one suite, run unchanged.

#[path = "support/l2_backends.rs"]
mod l2_backends;
#[path = "support/l2_eviction.rs"]
mod l2_eviction;
#[path = "support/l2_failures.rs"]
mod l2_failures;
#[path = "support/l2_faults.rs"]
mod l2_faults;
#[path = "support/l2_helpers.rs"]
mod l2_helpers;
#[path = "support/l2_lookups.rs"]
mod l2_lookups;
#[path = "support/l2_operations.rs"]
mod l2_operations;
#[path = "support/l2_policies.rs"]
mod l2_policies;
#[path = "support/l2_pools.rs"]
mod l2_pools;
#[path = "support/l2_recovery.rs"]
mod l2_recovery;
#[macro_use]
#[path = "support/l2_suite.rs"]
mod l2_suite;
#[cfg(feature = "local-hub")]
mod support;

l2_suite!(in_memory: crate::l2_backends::in_memory);
l2_suite!(files: crate::l2_backends::files);
l2_suite!(s3: crate::l2_backends::s3);
#[cfg(feature = "local-hub")]
l2_suite!(hf_bucket: crate::l2_backends::hf_bucket);
