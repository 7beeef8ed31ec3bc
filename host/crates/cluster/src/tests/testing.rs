//! Caches one kind without a watch, for benchmarks that measure a single event.

use innkeeper_model::Gvk;

use super::{
    store::{Listing, ObjectKey, Store},
    stored::{Malformed, Shape, keep_fields},
    wire::{Line, LineKind},
};

/// Cached objects of one kind.
#[derive(Debug)]
pub struct ObjectCache {
    shape: Shape,
    store: Store,
}

impl ObjectCache {
    /// Creates an empty cache for a kind of parents: whole objects without foreign managedFields entries.
    pub fn new(kind: Gvk) -> Self {
        let shape = Shape {
            managers: Some(std::sync::Arc::default()),
            ..Shape::whole(&kind)
        };
        Self {
            shape,
            store: Store::default(),
        }
    }

    /// Applies one watch line and returns true if guests would see a change.
    ///
    /// Fails on a line that ends a watch.
    pub fn take(&mut self, line: &str) -> Result<bool, Malformed> {
        let line: Line<'_> = serde_json::from_str(line)?;
        let stored = match line.kind {
            LineKind::Added | LineKind::Modified | LineKind::Deleted => {
                keep_fields(&line.object, &self.shape)?
            }
            LineKind::Bookmark | LineKind::Error => return Ok(false),
        };
        let changes = if line.kind == LineKind::Deleted {
            self.store
                .remove(&ObjectKey::for_object(&stored), stored.version)
                .into_iter()
                .collect()
        } else {
            self.store.put(stored, Listing::default())
        };
        Ok(changes.iter().any(super::store::Change::json_changed))
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Returns true if the cache holds no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
