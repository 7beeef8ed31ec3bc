//! Kubernetes Events about parents: each is written once and then counted, and their rate is limited.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use innkeeper_model::{Digest, Event, EventType, Object, PluginName, Rate, TokenBucket, Uid};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    Error, ErrorKind, MANAGER, Writer,
    request::{Address, built_in},
};

/// An event that is repeated within this time is counted, not created again; as in client-go.
const SERIES_LASTS: SignedDuration = SignedDuration::from_mins(6);

/// The events about one parent: 25 at once and then one in five minutes, as in client-go.
const RATE: Rate = Rate {
    burst: 25,
    refill: Duration::from_mins(25 * 5),
};

/// The most series and parents that are remembered: client-go's cache size. Forgetting one costs an event
/// that is written twice.
const REMEMBERED_MAX: usize = 4096;

/// The longest message, in bytes: the API server's limit.
const NOTE_BYTES_MAX: usize = 1024;

/// Creates events, and remembers them to count repetitions.
#[derive(Default)]
pub struct Events {
    state: Mutex<EventsState>,
}

#[derive(Default)]
struct EventsState {
    series: BTreeMap<SeriesKey, Series>,
    buckets: BTreeMap<Uid, TokenBucket<Duration>>,
}

/// An event's identity: two events with the same key are one series.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SeriesKey {
    plugin: PluginName,
    parent: Uid,
    kind: EventType,
    reason: String,
    message: String,
}

struct Series {
    name: String,
    count: u32,
    last: Timestamp,
    written: Timestamp,
}

/// The write that an event needs.
enum Due {
    Nothing,
    New(String),
    Count { name: String, count: u32 },
}

/// An event to write: a new one, or a series' count.
pub struct EventWrite {
    series: SeriesKey,
    parent_namespace: Option<Arc<str>>,
    namespace: String,
    name: String,
    is_new: bool,
    /// The event, or the change to the series.
    body: Value,
}

impl EventWrite {
    /// Returns the event's reason.
    pub fn reason(&self) -> &str {
        &self.series.reason
    }

    /// Returns the parent's namespace; none for a cluster-scoped parent.
    pub fn parent_namespace(&self) -> Option<&str> {
        self.parent_namespace.as_deref()
    }

    /// Sets an annotation.
    pub fn annotate(&mut self, annotation: &str, value: &str) {
        self.body["metadata"]["annotations"][annotation] = value.into();
    }
}

impl Events {
    /// Returns the write that an event needs; none if the same event was just written, or if the parent had too many.
    ///
    /// `fresh` is true if the pass changed something; any other pass only repeats the last pass's events.
    /// The caller must [forget](Self::forget) a write that it does not send.
    pub fn due(
        &self,
        plugin: &PluginName,
        parent: &Object,
        event: &Event,
        fresh: bool,
        now: Timestamp,
    ) -> Option<EventWrite> {
        let series = key(plugin, parent, event);
        let due = self.state.lock().due(&series, parent, fresh, now);
        // Events are namespaced. Those about cluster-scoped objects are in `default`, as in client-go.
        let namespace = parent.namespace.as_deref().unwrap_or("default").to_owned();
        let (name, is_new, body) = match due {
            Due::Nothing => return None,
            Due::New(name) => {
                let body = Self::body(plugin, parent, event, &name, &namespace, now);
                (name, true, body)
            }
            Due::Count { name, count } => {
                let series = json!({"count": count, "lastObservedTime": micros(now)});
                (name, false, json!({"series": series}))
            }
        };
        Some(EventWrite {
            series,
            parent_namespace: parent.namespace.clone(),
            namespace,
            name,
            is_new,
            body,
        })
    }

    /// Writes an event.
    pub async fn write(&self, writer: &Writer, write: &EventWrite) -> Result<(), Error> {
        let resource = built_in("events.k8s.io", "v1", "Event", "events");
        let address = Address::new(&resource, Some(&write.namespace), &write.name);
        let manager = write.series.plugin.host_manager();
        let request = if write.is_new {
            address.post(&manager, &write.body)
        } else {
            address.merge_patch(&manager, &write.body)
        };
        match writer.send(request).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind == ErrorKind::Gone => {
                // The API server removes every event after an hour.
                self.forget(write);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Forgets a write that is not sent: the next one like it is a new event.
    pub fn forget(&self, write: &EventWrite) {
        self.state.lock().series.remove(&write.series);
    }

    fn body(
        plugin: &PluginName,
        parent: &Object,
        event: &Event,
        name: &str,
        namespace: &str,
        now: Timestamp,
    ) -> Value {
        let mut regarding = json!({
            "apiVersion": parent.kind.api_version(),
            "kind": *parent.kind.kind,
            "name": *parent.name,
            "uid": *parent.uid.0,
            "resourceVersion": parent.resource_version.to_string(),
        });
        if let Some(namespace) = &parent.namespace {
            regarding["namespace"] = (**namespace).into();
        }
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": micros(now),
            "reportingController": format!("innkeeper.dev/{plugin}"),
            // The API server refuses an Event without instance or action.
            "reportingInstance": MANAGER,
            "action": "Reconcile",
            "type": match event.kind {
                EventType::Normal => "Normal",
                EventType::Warning => "Warning",
            },
            "reason": event.reason,
            "note": event.message[..event.message.floor_char_boundary(NOTE_BYTES_MAX)],
            "regarding": regarding,
        })
    }
}

impl EventsState {
    fn due(&mut self, key: &SeriesKey, parent: &Object, fresh: bool, now: Timestamp) -> Due {
        if let Some(series) = self.series.get_mut(key) {
            if !fresh {
                return Due::Nothing;
            }
            if now.duration_since(series.last) < SERIES_LASTS {
                return series.repeat(now);
            }
        }
        // Also in a new process that remembers no series: the answer repeats the events of the last one.
        if !fresh || !self.take(&parent.uid, now) {
            return Due::Nothing;
        }
        let name = name(parent, key, now);
        let series = Series {
            name: name.clone(),
            count: 1,
            last: now,
            written: now,
        };
        self.series.insert(key.clone(), series);
        self.evict(now);
        Due::New(name)
    }

    /// Takes a token from a parent's bucket.
    fn take(&mut self, parent: &Uid, now: Timestamp) -> bool {
        self.buckets
            .entry(parent.clone())
            .or_default()
            .take_all(1, RATE, since_epoch(now))
    }

    /// Forgets the oldest entries above the limit.
    fn evict(&mut self, now: Timestamp) {
        if self.series.len() > REMEMBERED_MAX {
            let oldest = self.series.iter().min_by_key(|(_, series)| series.last);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                self.series.remove(&key);
            }
        }
        if self.buckets.len() > REMEMBERED_MAX {
            let now = since_epoch(now);
            // A forgotten bucket starts full again, so forgetting the fullest gives away the fewest events.
            let fullest = self
                .buckets
                .iter()
                .max_by_key(|(_, bucket)| bucket.available(RATE, now));
            if let Some(uid) = fullest.map(|(uid, _)| uid.clone()) {
                self.buckets.remove(&uid);
            }
        }
    }
}

impl Series {
    /// Counts a repetition. The count is written for the second event, and then once per series length.
    fn repeat(&mut self, now: Timestamp) -> Due {
        self.count = self.count.saturating_add(1);
        self.last = now;
        if self.count > 2 && now.duration_since(self.written) < SERIES_LASTS {
            return Due::Nothing;
        }
        self.written = now;
        Due::Count {
            name: self.name.clone(),
            count: self.count,
        }
    }
}

fn key(plugin: &PluginName, parent: &Object, event: &Event) -> SeriesKey {
    SeriesKey {
        plugin: plugin.clone(),
        parent: parent.uid.clone(),
        kind: event.kind,
        reason: event.reason.clone(),
        message: event.message.clone(),
    }
}

/// Returns a unique name that starts with the parent's name.
fn name(parent: &Object, key: &SeriesKey, now: Timestamp) -> String {
    // The time is part of the name, because the same event begins a new series after a while or after a restart.
    let when = now.as_nanosecond().to_be_bytes();
    let texts = [
        key.plugin.as_str(),
        &key.parent.0,
        &key.reason,
        &key.message,
    ];
    let parts = texts.iter().flat_map(|text| [text.as_bytes(), b"\0"]);
    let digest = Digest::hash_parts(parts.chain([&when[..]])).to_hex();
    let unique: String = digest.chars().take(16).collect();
    // An object's name has at most 253 characters, and the API server accepts only ASCII.
    let parent: String = parent.name.chars().take(230).collect();
    format!("{}.{unique}", parent.trim_end_matches(['.', '-']))
}

/// Returns a time as Kubernetes' `MicroTime`.
fn micros(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// Returns the time since 1970; zero for earlier times.
fn since_epoch(time: Timestamp) -> Duration {
    Duration::try_from(time.as_duration()).unwrap_or_default()
}
