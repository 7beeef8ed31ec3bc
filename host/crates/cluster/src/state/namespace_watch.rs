//! One request of a watch, with version, health and freshness.

use std::sync::Arc;

use innkeeper_model::ResourceVersion;
use tokio::time::Instant;

use crate::interest::Why;

/// The request that lists and watches one namespace, or the whole cluster.
#[derive(Debug)]
pub(super) struct NamespaceWatch {
    /// None: everywhere, or a cluster-scoped kind.
    pub(super) namespace: Option<Arc<str>>,
    /// The only task that may write to this watch: not one that was started for another form or URL. Never reused.
    pub(super) generation: u64,
    /// The cached texts have the wrong form, so the next list replaces everything.
    pub(super) is_reshaped: bool,
    pub(super) health: Health,
    /// The freshness check has not passed: another process may have made writes that this watch has not shown yet.
    pub(super) is_unchecked: bool,
    /// The time of the first list failure since the last complete list, if there is one.
    pub(super) failing_since: Option<Instant>,
    /// The time of the last health change.
    pub(super) since: Instant,
    pub(super) version: ResourceVersion,
    pub(super) last_event: Option<Instant>,
    pub(super) last_error: Option<String>,
    /// Complete lists so far.
    pub(super) lists: usize,
}

/// Tells whether a watch's objects are usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// The objects are complete. Next: `Refused` if the API server denies access, `Listing` if the watch restarts.
    Synced,
    /// The first list is in progress, with the last failure.
    Listing(Option<String>),
    /// The API server denies access, with this message.
    Refused(String),
}

impl NamespaceWatch {
    /// Creates a watch that has shown nothing yet.
    pub(super) fn new(namespace: Option<Arc<str>>, generation: u64, now: Instant) -> Self {
        Self {
            namespace,
            generation,
            is_reshaped: false,
            health: Health::Listing(None),
            is_unchecked: false,
            failing_since: None,
            since: now,
            version: ResourceVersion::default(),
            last_event: None,
            last_error: None,
            lists: 0,
        }
    }

    /// Sets the health, and the time if it differs.
    pub(super) fn set_health(&mut self, health: Health, now: Instant) {
        // Another message is not another state: `since` shows how long a failure lasts.
        if std::mem::discriminant(&self.health) != std::mem::discriminant(&health) {
            self.since = now;
        }
        self.health = health;
    }

    /// Starts over: another task lists everything.
    pub(super) fn restart(&mut self, generation: u64, is_reshaped: bool, now: Instant) {
        // The version stays: the new list must not be older than what passes have seen.
        self.generation = generation;
        self.is_reshaped = is_reshaped;
        self.failing_since = None;
        self.set_health(Health::Listing(None), now);
    }

    /// Why the objects are not usable, if they are not.
    pub(super) fn why(&self) -> Option<Why> {
        match &self.health {
            Health::Synced if self.is_unchecked => Some(Why::Unchecked),
            Health::Synced => None,
            Health::Listing(None) => Some(Why::Listing),
            Health::Listing(Some(message)) => Some(Why::Failing {
                message: message.clone(),
            }),
            Health::Refused(message) => Some(Why::Forbidden {
                message: message.clone(),
            }),
        }
    }
}
