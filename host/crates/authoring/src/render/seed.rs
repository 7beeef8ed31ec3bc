//! Reproducible random bytes: a SHA-256 counter stream over the seed and the purpose.

use innkeeper_model::{Generated, ObjectId};
use innkeeper_plan as plan;
use sha2::{Digest as _, Sha256};

/// The seed for the guest's random numbers.
pub(super) fn for_pass(seed: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    stream(seed, "pass")(&mut bytes);
    bytes
}

/// A generated Secret value.
pub(super) fn generated(seed: u64, secret: &ObjectId, entry: &Generated) -> String {
    let token = entry
        .token
        .as_ref()
        .map_or_else(String::new, |token| format!(" {token}"));
    // Each value has a separate stream, so another entry does not change it.
    let purpose = format!("generate {}/{}{token}", secret.identity(), entry.key);
    plan::generate(entry, &mut stream(seed, &purpose))
}

/// The suffix that stands for the one an API server appends to a `generateName`.
pub(super) fn name_suffix(seed: u64, prefix: &str) -> String {
    let entry = Generated {
        key: String::new(),
        length: 5,
        // The API server's alphabet: without vowels and the digits that resemble them, so no words appear.
        alphabet: "bcdfghjklmnpqrstvwxz2456789".to_owned(),
        token: None,
    };
    plan::generate(&entry, &mut stream(seed, &format!("name {prefix}")))
}

/// Returns a byte source.
fn stream(seed: u64, purpose: &str) -> impl FnMut(&mut [u8]) + use<> {
    let mut key = seed.to_le_bytes().to_vec();
    key.extend_from_slice(purpose.as_bytes());
    let mut counter = 0_u64;
    move |bytes| {
        for chunk in bytes.chunks_mut(32) {
            let hash = Sha256::new()
                .chain_update(counter.to_le_bytes())
                .chain_update(&key);
            counter += 1;
            chunk.copy_from_slice(&hash.finalize()[..chunk.len()]);
        }
    }
}
