//! Revisions that have been active, and those that may become active again.
//!
//! Pure. The caller writes the history to `status.history`, from which the next process restores it: a new host has no
//! other record of earlier revisions.

use innkeeper_model::{Digest, HashKey, Uid};
use innkeeper_sandbox::{Plugin, artifact::Needs, revision_of};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::resource::{HistoryEntry, HistoryVerdict, revision_name, whole_seconds};

/// Maximum number of revisions, the same as a Deployment's default.
const ENTRIES_MAX: usize = 10;

/// Limit for their configurations as JSON, in bytes. The API server accepts objects up to 1.5 MiB, and the spec with
/// the declared configuration takes its share.
const CONFIG_BYTES_MAX: usize = 256 * 1024;

/// The longest reason in characters, as limited by the status schema.
const MESSAGE_CHARS_MAX: usize = 1024;

/// Past revisions as status entries, latest first, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History(pub(crate) Vec<HistoryEntry>);

/// A revision that has been active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PastRevision {
    /// The digest over bytes and configuration.
    pub(crate) revision: Digest,
    /// The digest over the bytes.
    pub(crate) digest: Digest,
    /// The configuration.
    pub(crate) config: Map<String, Value>,
}

/// The reason for an activation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// It is declared.
    Declared,
    /// It was active when an earlier process ended.
    Resumed,
    /// The active revision is rolled back to it.
    RolledBack {
        /// The active revision's faults.
        why: String,
    },
}

/// An event's time, and the spec's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The time.
    pub(crate) now: Timestamp,
    /// The generation.
    pub(crate) generation: Option<i64>,
}

impl PastRevision {
    pub(crate) fn from_plugin(plugin: &Plugin) -> Self {
        Self {
            revision: plugin.revision().clone(),
            digest: plugin.digest().clone(),
            // Never fails: the text came from such a map.
            config: serde_json::from_str(plugin.config()).unwrap_or_default(),
        }
    }
}

impl History {
    /// Returns a Plugin's history from its stored status if a host with this key sealed it, otherwise an empty one.
    ///
    /// The entries name cached components and their configurations. Without the seal, a user who may write the status
    /// could have the host serve any Plugin's component, with any configuration and with this Plugin's grants.
    pub(crate) fn unsealed(status: &Map<String, Value>, plugin: &Uid, key: &HashKey) -> Self {
        let sealed = status.get("history").and_then(|entries| {
            let seal = status.get("historySeal").and_then(Value::as_str)?;
            // The stored JSON, because another host version may have written fields that this one does not know.
            let is_sealed = seal == seal_of(entries, plugin, key);
            is_sealed.then(|| serde_json::from_value(entries.clone()).ok())?
        });
        Self(sealed.unwrap_or_default())
    }

    /// Returns the seal for the status; none without entries.
    pub(crate) fn seal(&self, plugin: &Uid, key: &HashKey) -> Option<String> {
        // Never fails: entries are plain data.
        let entries = serde_json::to_value(&self.0).ok()?;
        (!self.0.is_empty()).then(|| seal_of(&entries, plugin, key))
    }

    /// Returns the revisions that may be resumed, the latest first: those that were not rolled back.
    pub(crate) fn past(&self) -> impl Iterator<Item = PastRevision> {
        let stays = |entry: &&HistoryEntry| entry.verdict != HistoryVerdict::RolledBack;
        self.0.iter().filter(stays).filter_map(past)
    }

    /// Returns the active revision; none while the plugin does not serve.
    pub(crate) fn active(&self) -> Option<PastRevision> {
        let latest = self.0.first()?;
        past(latest).filter(|_| latest.served_until.is_none())
    }

    /// Returns rollback targets for the active revision, latest first.
    pub(crate) fn good(&self) -> impl Iterator<Item = PastRevision> {
        let good = |entry: &&HistoryEntry| entry.verdict == HistoryVerdict::Good;
        // The first entry is the active revision.
        self.0.iter().skip(1).filter(good).filter_map(past)
    }

    /// Returns true while the latest revision's first passes are analysed.
    pub(crate) fn is_on_trial(&self) -> bool {
        self.0
            .first()
            .is_some_and(|latest| latest.verdict == HistoryVerdict::Trial)
    }

    /// Returns true if a revision with these bytes has been active.
    pub(crate) fn has_component(&self, digest: &Digest) -> bool {
        let digest = digest.to_string();
        self.0.iter().any(|entry| entry.digest == digest)
    }

    /// Records an activation.
    ///
    /// A declared revision is on trial, unless it was the last active one: that one keeps its verdict, so a restart
    /// does not analyse it again.
    pub(crate) fn begin(&mut self, past: &PastRevision, activation: &Activation, at: Moment) {
        if let Activation::RolledBack { why } = activation
            && let Some(latest) = self.0.first_mut()
        {
            latest.verdict = HistoryVerdict::RolledBack;
            latest.message = Some(why.chars().take(MESSAGE_CHARS_MAX).collect());
            latest.generation = at.generation;
        }
        let name = revision_name(&past.revision);
        let position = self.0.iter().position(|entry| entry.revision == name);
        let earlier = position.map(|position| (position, self.0.remove(position)));
        let entry = match earlier {
            // It was active when the last process ended: the entry keeps its times, so a restart changes no status.
            Some((0, entry)) if entry.served_until.is_none() => HistoryEntry {
                verdict: resumed(entry.verdict),
                ..entry
            },
            Some((position, entry)) if position == 0 || *activation != Activation::Declared => {
                begun(past, resumed(entry.verdict), at)
            }
            Some(_) | None => begun(past, HistoryVerdict::Trial, at),
        };
        // Before the insertion: it ends the revision that was active until now.
        self.end(at);
        self.0.insert(0, entry);
        self.shorten();
    }

    /// Records that no revision is active any more.
    pub(crate) fn end(&mut self, at: Moment) {
        if let Some(latest) = self.0.first_mut() {
            latest
                .served_until
                .get_or_insert_with(|| whole_seconds(at.now));
        }
    }

    /// Records that the latest revision's first passes succeeded.
    pub(crate) fn pass(&mut self) {
        if let Some(latest) = self.0.first_mut()
            && latest.verdict == HistoryVerdict::Trial
        {
            latest.verdict = HistoryVerdict::Good;
        }
    }

    /// Returns why a revision was rolled back under this generation, if it was.
    pub(crate) fn rolled_back(&self, revision: &Digest, generation: Option<i64>) -> Option<String> {
        let name = revision_name(revision);
        let entry = self.0.iter().find(|entry| entry.revision == name)?;
        rollback(entry, generation)
    }

    /// Returns why the revision before the latest one was rolled back, if that was under this generation.
    pub(crate) fn last_rollback(&self, generation: Option<i64>) -> Option<String> {
        // A rollback puts its target first, just before the revision that faulted.
        rollback(self.0.get(1)?, generation)
    }

    /// Returns the components for all revisions. The active revision's and the rollback target's are always kept.
    pub(crate) fn needs(&self) -> Needs {
        let component = |entry: &HistoryEntry| entry.digest.parse().ok();
        let latest = self.0.first().and_then(component);
        let good = self.good().next().map(|past| past.digest);
        Needs {
            kept: latest.into_iter().chain(good).collect(),
            spare: self.0.iter().filter_map(component).collect(),
        }
    }

    fn shorten(&mut self) {
        let mut bytes = 0;
        let count = self
            .0
            .iter()
            .take(ENTRIES_MAX)
            .take_while(|entry| {
                bytes += Value::Object(entry.config.clone()).to_string().len();
                bytes <= CONFIG_BYTES_MAX
            })
            .count();
        self.0.truncate(count);
    }
}

/// Returns a seal for entries: the format version, and a keyed hash over their JSON, whose maps are sorted.
fn seal_of(entries: &Value, plugin: &Uid, key: &HashKey) -> String {
    let hash = key.hash("history", &[&plugin.0, &entries.to_string()]);
    format!("v1:{hash}")
}

fn begun(past: &PastRevision, verdict: HistoryVerdict, at: Moment) -> HistoryEntry {
    HistoryEntry {
        revision: revision_name(&past.revision),
        digest: past.digest.to_string(),
        config: past.config.clone(),
        served_from: whole_seconds(at.now),
        served_until: None,
        verdict,
        message: None,
        generation: None,
    }
}

/// Returns the verdict for a reactivated revision: one that was rolled back gets another trial.
const fn resumed(verdict: HistoryVerdict) -> HistoryVerdict {
    match verdict {
        HistoryVerdict::Good => HistoryVerdict::Good,
        HistoryVerdict::Trial | HistoryVerdict::RolledBack => HistoryVerdict::Trial,
    }
}

/// Returns an entry's revision; none if the digest and configuration do not match the name, as in an edited entry.
fn past(entry: &HistoryEntry) -> Option<PastRevision> {
    let digest: Digest = entry.digest.parse().ok()?;
    let revision = revision_of(&digest, &entry.config);
    (revision_name(&revision) == entry.revision).then(|| PastRevision {
        revision,
        digest,
        config: entry.config.clone(),
    })
}

fn rollback(entry: &HistoryEntry, generation: Option<i64>) -> Option<String> {
    let is_current = entry.verdict == HistoryVerdict::RolledBack && entry.generation == generation;
    let why = entry.message.as_deref().unwrap_or_default();
    is_current.then(|| {
        format!(
            "revision {} was rolled back, because {why}; change the spec of the Plugin to try it again",
            entry.revision
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::PluginStatus;

    fn past_of(text: &str) -> PastRevision {
        let digest = Digest::hash(text.as_bytes());
        let config = Map::from_iter([("of".to_owned(), text.into())]);
        PastRevision {
            revision: revision_of(&digest, &config),
            digest,
            config,
        }
    }

    fn at(second: i64) -> Moment {
        Moment {
            now: Timestamp::from_millisecond(second * 1000 + 7).unwrap(),
            generation: Some(second / 10),
        }
    }

    fn back() -> Activation {
        Activation::RolledBack {
            why: "it trapped".to_owned(),
        }
    }

    /// Checks each entry's component, time and verdict.
    #[track_caller]
    fn check(history: &History, expected: &[&str]) {
        let show = |entry: &HistoryEntry| {
            let until = entry
                .served_until
                .as_ref()
                .map_or_else(String::new, |until| until.0.as_second().to_string());
            let of = entry.config["of"].as_str().unwrap();
            let from = entry.served_from.0.as_second();
            format!("{of} {from}-{until} {:?}", entry.verdict)
        };
        let entries: Vec<String> = history.0.iter().map(show).collect();
        assert_eq!(entries, expected);
    }

    #[test]
    fn every_revision_is_on_trial_and_is_noted_once() {
        let mut history = History::default();
        history.begin(&past_of("a"), &Activation::Declared, at(10));
        assert!(history.is_on_trial());
        history.pass();
        assert!(!history.is_on_trial());
        history.begin(&past_of("b"), &Activation::Declared, at(20));
        check(&history, &["b 20- Trial", "a 10-20 Good"]);
        history.pass();
        history.begin(&past_of("a"), &Activation::Declared, at(30));
        check(&history, &["a 30- Trial", "b 20-30 Good"]);
        assert_eq!(history.active(), Some(past_of("a")));
        history.end(at(40));
        assert_eq!(history.active(), None);
        history.end(at(50));
        check(&history, &["a 30-40 Trial", "b 20-30 Good"]);
    }

    #[test]
    fn the_last_active_revision_keeps_its_verdict() {
        let mut history = History::default();
        history.begin(&past_of("a"), &Activation::Declared, at(10));
        history.pass();
        for why in [Activation::Declared, Activation::Resumed] {
            let mut again = history.clone();
            again.begin(&past_of("a"), &why, at(20));
            assert_eq!(again, history);
            again.end(at(30));
            again.begin(&past_of("a"), &why, at(40));
            check(&again, &["a 40- Good"]);
        }
        history.begin(&past_of("b"), &Activation::Declared, at(50));
        let mut again = history.clone();
        again.begin(&past_of("b"), &Activation::Resumed, at(60));
        assert_eq!(again, history);
        // The one before, because the latest is not available.
        again.begin(&past_of("a"), &Activation::Resumed, at(70));
        check(&again, &["a 70- Good", "b 50-70 Trial"]);
    }

    #[test]
    fn a_revision_that_was_rolled_back_waits_for_another_spec() {
        let mut history = History::default();
        history.begin(&past_of("a"), &Activation::Declared, at(10));
        history.pass();
        history.begin(&past_of("b"), &Activation::Declared, at(20));
        let good: Vec<PastRevision> = history.good().collect();
        assert_eq!(good, [past_of("a")]);
        history.begin(&past_of("a"), &back(), at(21));
        check(&history, &["a 21- Good", "b 20-21 RolledBack"]);
        let why = history.last_rollback(Some(2)).unwrap();
        assert!(why.contains("because it trapped;"), "{why}");
        let b = past_of("b").revision;
        assert_eq!(history.rolled_back(&b, Some(2)), Some(why));
        assert_eq!(history.rolled_back(&b, Some(3)), None);
        assert_eq!(history.last_rollback(Some(3)), None);
        assert_eq!(history.rolled_back(&past_of("a").revision, Some(2)), None);
        // Neither now nor after a restart.
        assert_eq!(history.past().collect::<Vec<_>>(), [past_of("a")]);
        assert_eq!(history.good().count(), 0);

        // Another active revision makes it history, but it is still not tried again.
        let mut other = history.clone();
        other.begin(&past_of("c"), &Activation::Declared, at(22));
        assert_eq!(other.last_rollback(Some(2)), None);
        assert!(other.rolled_back(&b, Some(2)).is_some());
        history.begin(&past_of("b"), &Activation::Declared, at(30));
        check(&history, &["b 30- Trial", "a 21-30 Good"]);
    }

    #[test]
    fn the_active_and_the_last_good_component_are_always_kept() {
        let mut history = History::default();
        assert_eq!(history.needs(), Needs::default());
        let digests = |names: &str| names.split(' ').map(|name| past_of(name).digest).collect();
        let check = |history: &History, kept, spare| {
            let kept = digests(kept);
            let spare = digests(spare);
            assert_eq!(history.needs(), Needs { kept, spare });
        };
        history.begin(&past_of("a"), &Activation::Declared, at(10));
        check(&history, "a", "a");
        let has = |name| history.has_component(&past_of(name).digest);
        assert!(has("a") && !has("b"));
        history.pass();
        history.begin(&past_of("b"), &Activation::Declared, at(20));
        check(&history, "a b", "a b");
        // It never became good, so the previous one is still the rollback target.
        history.begin(&past_of("c"), &Activation::Declared, at(30));
        check(&history, "a c", "a b c");
        history.begin(&past_of("a"), &back(), at(31));
        check(&history, "a", "a b c");
    }

    /// Otherwise a user who may write the status chooses the code and the configuration that the grants are used with.
    #[test]
    fn only_a_history_with_the_seal_of_the_host_for_the_same_plugin_is_used() {
        let mut history = History::default();
        for name in ["a", "b"] {
            history.begin(&past_of(name), &Activation::Declared, at(10));
            history.pass();
        }
        let [plugin, other] = ["web", "shop"].map(|name| Uid(name.into()));
        let [key, foreign] = [7, 8].map(|byte| HashKey::new([byte; 32]));
        let status = PluginStatus {
            history: history.0.clone(),
            history_seal: history.seal(&plugin, &key),
            ..PluginStatus::default()
        };
        let unsealed = |status: &PluginStatus, plugin, key| {
            let stored = serde_json::to_value(status).unwrap();
            History::unsealed(stored.as_object().unwrap(), plugin, key)
        };
        assert_eq!(unsealed(&status, &plugin, &key), history);
        let empty = History::default();
        assert_eq!(empty.seal(&plugin, &key), None);

        assert_eq!(unsealed(&status, &other, &key), empty);
        assert_eq!(unsealed(&status, &plugin, &foreign), empty);
        let edits: [fn(&mut PluginStatus); 8] = [
            |status| status.history_seal = None,
            |status| status.history.swap(0, 1),
            |status| drop(status.history.remove(0)),
            |status| drop(status.history.remove(1)),
            |status| status.history[1].verdict = HistoryVerdict::RolledBack,
            |status| status.history[0].generation = Some(1),
            // A whole entry for another component, and one for the same component with another configuration.
            |status| status.history[0] = begun(&past_of("c"), HistoryVerdict::Good, at(10)),
            |status| {
                let mut past = past_of("b");
                past.config.insert("more".to_owned(), 1.into());
                past.revision = revision_of(&past.digest, &past.config);
                status.history[0] = begun(&past, HistoryVerdict::Good, at(10));
            },
        ];
        for (number, edit) in edits.iter().enumerate() {
            let mut edited = status.clone();
            edit(&mut edited);
            assert_ne!(edited, status, "{number}");
            assert_eq!(unsealed(&edited, &plugin, &key), empty, "{number}");
        }
    }

    #[test]
    fn it_does_not_grow_and_ignores_edited_entries() {
        let mut history = History::default();
        for number in 0..20 {
            history.begin(
                &past_of(&number.to_string()),
                &Activation::Declared,
                at(number),
            );
        }
        assert_eq!(history.0.len(), ENTRIES_MAX);
        assert_eq!(history.past().next(), Some(past_of("19")));
        let mut large = past_of("large");
        large
            .config
            .insert("text".to_owned(), "x".repeat(200_000).into());
        large.revision = revision_of(&large.digest, &large.config);
        history.begin(&large, &Activation::Declared, at(20));
        let mut larger = large.clone();
        larger.config.insert("more".to_owned(), 1.into());
        larger.revision = revision_of(&larger.digest, &larger.config);
        history.begin(&larger, &Activation::Declared, at(21));
        assert_eq!(history.0.len(), 1);

        let mut entries = history.0.clone();
        entries[0].config.clear();
        assert_eq!(History(entries.clone()).past().next(), None);
        entries[0].digest = "none".to_owned();
        let history = History(entries);
        assert_eq!(history.past().next(), None);
        assert_eq!(history.needs(), Needs::default());
    }
}
