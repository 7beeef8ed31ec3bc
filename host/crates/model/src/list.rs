//! Lists in messages.

use std::fmt::Display;

/// Joins the first `max` items, and counts the others: `a, b and 3 more`; none if there is no item.
pub fn join_first(items: impl IntoIterator<Item = impl Display>, max: usize) -> Option<String> {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    let first = items.get(..max).unwrap_or(&items).join(", ");
    match items.len().saturating_sub(max) {
        _ if items.is_empty() => None,
        0 => Some(first),
        more => Some(format!("{first} and {more} more")),
    }
}
