//! Bytes that do not compress, as KV data does not.

use bytes::{Bytes, BytesMut};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// So many bytes, the same for the same seed, of which 32 bytes count.
pub(super) fn noise(seed: &[u8], len: usize) -> Bytes {
    let mut start = [0; 32];
    for (to, from) in start.iter_mut().zip(seed) {
        *to = *from;
    }
    let mut data = BytesMut::zeroed(len);
    SmallRng::from_seed(start).fill_bytes(&mut data);
    data.freeze()
}
