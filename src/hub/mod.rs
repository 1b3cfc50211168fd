//! The Hub's REST API for buckets: requests, wire types, retries, rate limits, paging.
