//! How much of an object is cached.

use super::Stored;

/// The cached part of an object.
///
/// Anybody who may create objects can give them the plugin's label, so the label alone is no reason to hold their texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All that the shape keeps.
    Whole,
    /// Identity and owner only, because no known parent owns it and it carries no proof of the host.
    Unowned,
    /// Identity and owner only, because the namespace had no room for its text of so many bytes.
    OverBound(usize),
}

impl Stored {
    /// The size of the cached texts, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.json.len() + self.managed.as_ref().map_or(0, |text| text.len())
    }

    /// Drops everything but identity, owner and proof.
    pub(crate) fn reduced(self, extent: Extent) -> Self {
        Self {
            managed: None,
            metadata: 0..0,
            json: "".into(),
            extent,
            ..self
        }
    }
}
