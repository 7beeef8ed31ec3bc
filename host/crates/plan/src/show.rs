//! Displays a plan as short lines.

use std::fmt;

use super::{Plan, PlannedChild, Progress};

/// Writes one line per operation, then one line per blocked child with the reason.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for operation in &self.operations {
            writeln!(f, "{operation}")?;
        }
        self.children
            .iter()
            .try_for_each(|child| fmt_blocked(child, f))
    }
}

fn fmt_blocked(child: &PlannedChild, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let PlannedChild { kind, id, .. } = child;
    let place = match &id.namespace {
        Some(namespace) => format!("{kind} {namespace}/{}", id.name),
        None => format!("{kind} {}", id.name),
    };
    match &child.progress {
        Progress::Waiting { after } => writeln!(f, "wait {place} after {}", after.join(", ")),
        Progress::Deleting => writeln!(f, "deleting {place}"),
        Progress::Withheld | Progress::NamespaceTerminating => writeln!(f, "withhold {place}"),
        Progress::NotServed { required: true } => writeln!(f, "blocked {place}: not served"),
        Progress::NotServed { required: false } => writeln!(f, "skip {place}: not served"),
        Progress::Unreadable { .. } => writeln!(f, "skip {place}: not readable"),
        Progress::NotOwned(_) => writeln!(f, "refuse {place}: not ours"),
        Progress::Adoptable { .. } => writeln!(f, "refuse {place}: not adopted"),
        Progress::NotAllowed { .. } => writeln!(f, "refuse {place}: not allowed"),
        Progress::Unchanged
        | Progress::Created
        | Progress::Updated
        | Progress::Transferred
        | Progress::Held
        | Progress::Missing => Ok(()),
    }
}
