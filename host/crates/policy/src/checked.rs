//! The mark of an answer that may be acted on.

use std::ops::Deref;

/// An answer of a guest that this crate has checked as a whole.
///
/// What writes takes only this, so that an unchecked answer cannot reach the cluster by mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked<T>(T);

impl<T> Checked<T> {
    /// Marks an answer as checked.
    pub(crate) const fn seal(answer: T) -> Self {
        Self(answer)
    }

    /// The answer itself.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Checked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
