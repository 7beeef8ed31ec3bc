//! Marks an answer as checked.

use std::ops::Deref;

/// A guest's answer that this crate has checked as a whole.
///
/// The planner accepts only this type, so an unchecked answer cannot reach the cluster.
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
