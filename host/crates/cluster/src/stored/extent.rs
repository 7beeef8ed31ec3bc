//! The cached part of an object.

use super::Stored;

/// The cached part of an object.
///
/// Any user who may create objects can set the plugin's label, so the label alone is no reason to cache a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All that the shape selects.
    Whole,
    /// Identity and owner only, because no known parent owns the object and it has no proof by the host.
    Unowned,
    /// Identity and owner only, because the namespace had no room for a text of this size, in bytes.
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
