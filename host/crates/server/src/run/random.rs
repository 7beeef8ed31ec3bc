//! The only source of randomness; callers get it as a function, so that tests can replace it.

/// Fills a buffer with cryptographically secure random bytes.
pub(super) fn fill_random(buffer: &mut [u8]) {
    getrandom::fill(buffer).expect("the kernel should have random bytes once it runs processes");
}

/// Returns a cryptographically secure random number.
pub(super) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    u64::from_ne_bytes(bytes)
}
