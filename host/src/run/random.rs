//! Randomness: the only source of it, handed to whoever needs some.

/// Fills a buffer with bytes that nobody can guess.
pub(super) fn fill_random(buffer: &mut [u8]) {
    getrandom::fill(buffer).expect("the kernel should have random bytes once it runs processes");
}

/// A number that nobody can guess.
pub(super) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    u64::from_ne_bytes(bytes)
}
