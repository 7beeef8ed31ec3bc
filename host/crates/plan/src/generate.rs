//! Generation of random values for Secrets.

use innkeeper_model::Generated;

/// Random bytes per call of the random source.
const CHUNK_BYTES: usize = 64;

/// Generates a value from random bytes, with the same probability for every character of the alphabet.
pub fn generate(entry: &Generated, random: &mut dyn FnMut(&mut [u8])) -> String {
    let alphabet = entry.alphabet.as_bytes();
    let length = usize::try_from(entry.length).unwrap_or(usize::MAX);
    let mut value = String::with_capacity(length);
    if alphabet.is_empty() {
        return value;
    }
    // Bytes from the last whole multiple of the alphabet's length on are discarded; taken modulo the length, they would
    // make the first characters more likely.
    let fair = 256 - 256 % alphabet.len().min(256);
    let mut chunk = [0; CHUNK_BYTES];
    while value.len() < length {
        random(&mut chunk);
        let wanted = length - value.len();
        let drawn = chunk
            .iter()
            .map(|byte| usize::from(*byte))
            .filter(|byte| *byte < fair)
            .filter_map(|byte| alphabet.get(byte % alphabet.len()))
            .take(wanted)
            .map(|character| char::from(*character));
        value.extend(drawn);
    }
    value
}
