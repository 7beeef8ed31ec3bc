//! Events of transitions.

use innkeeper_sdk::prelude::*;

/// The events of transitions, from a comparison with the stored conditions.
pub(super) fn events(request: &Request, conditions: &[Condition]) -> Vec<Event> {
    let find = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
    let Some(available) = find("Available") else {
        return Vec::new();
    };
    let stored = request.stored_condition("Available");
    let before = stored.as_ref().map_or("", |stored| stored.reason.as_str());
    if before == available.reason {
        return Vec::new();
    }
    let message = available.message.clone();
    let event = match (before, available.reason.as_str()) {
        ("Bootstrapping" | "BootstrapFailed", "QuorumHealthy" | "QuorumAvailable") => {
            Event::normal("ClusterFormed", message)
        }
        ("Paused" | "Resuming", "QuorumHealthy" | "QuorumAvailable") => {
            Event::normal("Resumed", message)
        }
        (_, "Paused") => Event::normal("Paused", message),
        (_, reason @ ("QuorumLost" | "StaleClaims" | "BootstrapFailed")) => {
            Event::warning(reason, message)
        }
        _ => return Vec::new(),
    };
    vec![event]
}
