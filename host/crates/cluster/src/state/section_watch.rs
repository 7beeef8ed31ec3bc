//! One request of a watch, with version, health and freshness.

use innkeeper_model::ResourceVersion;
use tokio::time::Instant;

use crate::{interest::Why, section::Section, store::Listing};

/// The request that lists and watches one section of a kind.
#[derive(Debug)]
pub(super) struct SectionWatch {
    /// The number, which stays when another task takes over. Never reused.
    pub(super) id: u64,
    /// The objects that belong to the request; it may show others.
    pub(super) section: Section,
    /// The only task that may write to this watch: not one that was started for another form or URL. Never reused.
    pub(super) generation: u64,
    /// The cached texts have the wrong form, so the next list replaces everything.
    pub(super) is_reshaped: bool,
    pub(super) health: Health,
    /// The objects whose freshness check has not passed: another process may have made writes that this watch has not
    /// shown yet.
    pub(super) unchecked: Option<Section>,
    /// The list that is in progress, or the last one.
    pub(super) listing: Listing,
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

impl SectionWatch {
    /// Creates a watch that has shown nothing yet.
    pub(super) fn new(section: Section, id: u64, is_reshaped: bool, now: Instant) -> Self {
        Self {
            id,
            section,
            generation: id,
            is_reshaped,
            health: Health::Listing(None),
            unchecked: None,
            listing: Listing::default(),
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

    /// Why the objects in a section are not usable, if they are not.
    pub(super) fn why(&self, section: &Section) -> Option<Why> {
        let is_unchecked = || {
            self.unchecked
                .as_ref()
                .is_some_and(|unchecked| unchecked.overlaps(section))
        };
        match &self.health {
            Health::Synced => is_unchecked().then_some(Why::Unchecked),
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
