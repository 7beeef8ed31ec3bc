//! The binary format of WebAssembly.

/// Returns a length as WebAssembly writes it.
pub fn leb128(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(number & 0x7f).expect("seven bits are a byte");
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}
