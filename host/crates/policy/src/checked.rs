//! The type that marks an answer as checked.

use std::ops::Deref;

/// An answer of a guest that this crate has checked as a whole.
///
/// The planner accepts only this type, so that an unchecked answer cannot reach the cluster by mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked<T>(T);

impl<T> Checked<T> {
    /// Marks an answer as checked; only this crate can do so.
    pub(crate) const fn seal(answer: T) -> Self {
        Self(answer)
    }

    /// Returns the answer.
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
