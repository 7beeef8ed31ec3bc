//! Plugins made by hand that are as they should be: one that is only there, and one and the same in other bytes.

use crate::handmade::{describing, with_section};

/// The same plugin with other bytes: behind a section that nobody reads, another one for each mark.
pub fn marked(plugin: &[u8], mark: u32) -> Vec<u8> {
    with_section(plugin, b"mark", &mark.to_le_bytes())
}

/// Serves parents of the kind `Idle` in a group of version `v1`, which never have a pass; children would be ConfigMaps.
pub fn idle(group: &str) -> Vec<u8> {
    describing(&Image::manifest(group).data())
}

/// The memory of a guest whose `describe` answers address 0.
struct Image {
    bytes: Vec<u8>,
}

impl Image {
    /// Where texts and lists lie: behind the manifest.
    const REST: usize = 64;

    fn manifest(group: &str) -> Self {
        let mut image = Self {
            bytes: vec![0; Self::REST],
        };
        let parent = image.record(&[group, "v1", "Idle", "idles"], 36, None);
        let child = image.record(&["v1", "ConfigMap"], 32, Some(16));
        let words = [
            image.text("idle"),
            image.text("1.0.0"),
            (parent, 1),
            (0, 0),
            (child, 1),
        ];
        for (at, (address, length)) in words.into_iter().enumerate() {
            image.put(at * 8, address);
            image.put(at * 8 + 4, length);
        }
        image
    }

    /// A record that begins with texts, of so many bytes, with a boolean that is true.
    fn record(&mut self, texts: &[&str], size: usize, truth: Option<usize>) -> usize {
        let texts: Vec<_> = texts.iter().map(|text| self.text(text)).collect();
        let at = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(at + size, 0);
        for (field, (address, length)) in texts.into_iter().enumerate() {
            self.put(at + field * 8, address);
            self.put(at + field * 8 + 4, length);
        }
        if let Some(truth) = truth {
            self.bytes[at + truth] = 1;
        }
        at
    }

    fn text(&mut self, text: &str) -> (usize, usize) {
        let at = self.bytes.len();
        self.bytes.extend(text.bytes());
        (at, text.len())
    }

    fn put(&mut self, at: usize, word: usize) {
        let word = u32::try_from(word).expect("addresses have 32 bits");
        self.bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }

    /// As a field of a core module.
    fn data(&self) -> String {
        let bytes = self.bytes.iter().map(|byte| format!("\\{byte:02x}"));
        format!("(data (i32.const 0) \"{}\")", bytes.collect::<String>())
    }
}
