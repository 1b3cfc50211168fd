//! A KV-cache L2 tier over any [`ObjectStore`](object_store::ObjectStore).
