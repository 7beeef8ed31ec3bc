//! One request of a watch, with its version, health and freshness.

use std::sync::Arc;

use innkeeper_model::ResourceVersion;
use tokio::time::Instant;

use crate::interest::Why;

/// The request that lists and watches one namespace, or the whole cluster.
#[derive(Debug)]
pub(super) struct NamespaceWatch {
    /// None: everywhere, or a cluster-scoped kind.
    pub(super) namespace: Option<Arc<str>>,
    /// The task that may write to this watch: a task that was started for another form or URL may not. Never reused.
    pub(super) generation: u64,
    /// The kept texts do not have the wanted form, so the next list replaces everything.
    pub(super) reshaped: bool,
    pub(super) health: Health,
    /// The freshness check is still to pass: another process may have made writes that this watch has not shown yet.
    pub(super) unchecked: bool,
    /// The time of the first failure since the last complete list; none if no list has failed.
    pub(super) failing_since: Option<Instant>,
    /// The time of the last change of its state.
    pub(super) since: Instant,
    pub(super) version: ResourceVersion,
    pub(super) last_event: Option<Instant>,
    pub(super) last_error: Option<String>,
    pub(super) lists: u64,
}

/// The state of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// The objects are complete. Next: `Refused` if the API server denies access, `Listing` if the watch starts over.
    Synced,
    /// The first list is in progress, with the last failure.
    Listing(Option<String>),
    /// The API server denies access, with its message.
    Refused(String),
}

impl NamespaceWatch {
    /// Creates a watch that has shown nothing yet.
    pub(super) fn new(namespace: Option<Arc<str>>, generation: u64, now: Instant) -> Self {
        Self {
            namespace,
            generation,
            reshaped: false,
            health: Health::Listing(None),
            unchecked: false,
            failing_since: None,
            since: now,
            version: ResourceVersion::default(),
            last_event: None,
            last_error: None,
            lists: 0,
        }
    }

    /// Sets the health and, if it differs, the time of the change.
    pub(super) fn set_health(&mut self, health: Health, now: Instant) {
        if std::mem::discriminant(&self.health) != std::mem::discriminant(&health) {
            self.since = now;
        }
        self.health = health;
    }

    /// Starts over: another task lists everything.
    pub(super) fn restart(&mut self, generation: u64, reshaped: bool, now: Instant) {
        self.generation = generation;
        self.reshaped = reshaped;
        self.failing_since = None;
        self.set_health(Health::Listing(None), now);
    }

    /// The reason that the objects cannot be used; none if they can.
    pub(super) fn why(&self) -> Option<Why> {
        match &self.health {
            Health::Synced if self.unchecked => Some(Why::Unchecked),
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
