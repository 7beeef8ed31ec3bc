//! Cuts a stream of bytes into lines.
//!
//! A chunk may end anywhere, even inside a character, so no byte is decoded before its line is complete.

use bytes::{Bytes, BytesMut};

/// The bytes of a line that is not complete yet.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    buffer: BytesMut,
    searched: usize,
}

impl LineBuffer {
    /// Appends the next chunk.
    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// Returns the next complete line without its line break; empty lines are skipped.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        loop {
            let rest = self.buffer.get(self.searched..).unwrap_or_default();
            let Some(at) = rest.iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                return None;
            };
            let mut line = self.buffer.split_to(self.searched + at + 1);
            self.searched = 0;
            line.truncate(line.len() - 1);
            if !line.trim_ascii().is_empty() {
                return Some(line.freeze());
            }
        }
    }

    /// The number of bytes that wait for the end of their line.
    pub(super) fn pending(&self) -> usize {
        self.buffer.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cuts_of_chunks_do_not_matter(
            lines in prop::collection::vec("[a-zäß漢 ]{0,12}", 0..12),
            cuts in prop::collection::vec(1_usize..7, 1..40),
            truncated in "[a-zä]{0,5}",
        ) {
            let mut text = lines.join("\n") + if lines.is_empty() { "" } else { "\n" };
            text.push_str(&truncated);
            let mut rest = text.as_bytes();
            let mut cuts = cuts.iter().cycle();
            let (mut reader, mut read) = (LineBuffer::default(), Vec::new());
            while !rest.is_empty() {
                let (chunk, tail) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                rest = tail;
                reader.push(chunk);
                while let Some(line) = reader.next() {
                    read.push(String::from_utf8(line.to_vec()).unwrap());
                }
            }
            let whole: Vec<String> = lines.into_iter().filter(|l| !l.trim().is_empty()).collect();
            prop_assert_eq!(read, whole);
            prop_assert_eq!(reader.pending(), truncated.len());
        }
    }
}
