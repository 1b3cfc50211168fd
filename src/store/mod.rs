//! `HfBucket`: the `object_store` face of a bucket.
