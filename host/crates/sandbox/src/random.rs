//! Random bytes for guests, made from a seed so that a pass can be replayed.

use sha2::{Digest, Sha256};

/// A stream of bytes that cannot be predicted without the seed: SHA-256 over the seed and a counter.
#[derive(Debug)]
pub(super) struct RandomStream {
    seed: [u8; 32],
    block: u64,
    rest: Vec<u8>,
}

impl RandomStream {
    pub(super) const fn new(seed: [u8; 32]) -> Self {
        Self {
            seed,
            block: 0,
            rest: Vec::new(),
        }
    }

    /// Returns the next bytes. The stream does not depend on how many bytes each call takes.
    pub(super) fn take(&mut self, len: usize) -> Vec<u8> {
        while self.rest.len() < len {
            let block = Sha256::new()
                .chain_update(b"innkeeper random")
                .chain_update(self.seed)
                .chain_update(self.block.to_le_bytes())
                .finalize();
            self.rest.extend_from_slice(&block);
            self.block += 1;
        }
        let rest = self.rest.split_off(len);
        std::mem::replace(&mut self.rest, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes_in_pieces_of_any_size() {
        let mut whole = RandomStream::new([7; 32]);
        let mut pieces = RandomStream::new([7; 32]);
        let mut joined = Vec::new();
        for len in [0, 1, 31, 32, 33, 100] {
            joined.extend(pieces.take(len));
        }
        assert_eq!(whole.take(197), joined);
        assert_ne!(RandomStream::new([8; 32]).take(197), joined);
    }
}
