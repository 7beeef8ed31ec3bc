//! Reproducible random bytes: a SHA-256 counter stream over the seed and the purpose.

use innkeeper_model::{Generated, ObjectId};
use innkeeper_plan as plan;
use sha2::{Digest as _, Sha256};

/// The seed of the guest's random numbers.
pub(super) fn of_pass(seed: u64) -> [u8; 32] {
    SeedStream::new(seed, "pass").block()
}

/// A generated value of a Secret.
pub(super) fn generated(seed: u64, secret: &ObjectId, entry: &Generated) -> String {
    let mut stream = SeedStream::new(
        seed,
        &format!("generate {}/{}", secret.identity(), entry.key),
    );
    plan::generate(entry, &mut |bytes| stream.fill(bytes))
}

/// The suffix that stands for the one an API server appends to a `generateName`.
pub(super) fn name_suffix(seed: u64, prefix: &str) -> String {
    let entry = Generated {
        key: String::new(),
        length: 5,
        // The alphabet of the API server: without vowels and the digits that resemble them, so that no words appear.
        alphabet: "bcdfghjklmnpqrstvwxz2456789".to_owned(),
    };
    let mut stream = SeedStream::new(seed, &format!("name {prefix}"));
    plan::generate(&entry, &mut |bytes| stream.fill(bytes))
}

struct SeedStream {
    key: Vec<u8>,
    counter: u64,
}

impl SeedStream {
    fn new(seed: u64, purpose: &str) -> Self {
        let mut key = seed.to_le_bytes().to_vec();
        key.extend_from_slice(purpose.as_bytes());
        Self { key, counter: 0 }
    }

    fn block(&mut self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(self.counter.to_le_bytes());
        hash.update(&self.key);
        self.counter += 1;
        hash.finalize().into()
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(32) {
            let block = self.block();
            chunk.copy_from_slice(&block[..chunk.len()]);
        }
    }
}
