//! The objects of one kind without anybody who watches them: what an event costs by itself, for `benches/operations.rs`.

use innkeeper_model::{Access, Gvk};

use super::{
    store::{Key, Store},
    stored::{Malformed, Shape, keep_fields},
    wire::{Line, LineKind},
};

/// Objects as the cache keeps them.
#[derive(Debug)]
pub struct Shelf {
    shape: Shape,
    store: Store,
}

impl Shelf {
    /// Nothing yet of a kind whose whole objects are kept, as of parents: the entries of foreign field managers are not.
    pub fn new(kind: Gvk) -> Self {
        let shape = Shape {
            kind,
            form: Access::Full,
            managers: Some(std::collections::BTreeSet::new()),
            hash_key: None,
        };
        Self {
            shape,
            store: Store::default(),
        }
    }

    /// Takes a line in, as a watch brings it; whether guests would see a difference.
    ///
    /// Fails on a line that a watch would not go on after.
    pub fn take(&mut self, line: &str) -> Result<bool, Malformed> {
        let line: Line<'_> = serde_json::from_str(line)?;
        let stored = match line.kind {
            LineKind::Added | LineKind::Modified | LineKind::Deleted => {
                keep_fields(&line.object, &self.shape)?
            }
            LineKind::Bookmark | LineKind::Error => return Ok(false),
        };
        let changes = if line.kind == LineKind::Deleted {
            let gone = self.store.remove(&Key::of(&stored), stored.version);
            gone.into_iter().collect()
        } else {
            self.store.put(stored)
        };
        Ok(changes.iter().any(super::store::Change::shows))
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
