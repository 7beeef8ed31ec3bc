//! The revisions that have served, and which of them may serve again.
//!
//! Pure. It is written to `status.history`, and read from there by the next process: it is how a host that has just
//! started knows the revisions that were active before.

use innkeeper_model::Digest;
use innkeeper_sandbox::revision_of;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::resource::{HistoryEntry, HistoryVerdict, revision_name, whole_seconds};

/// The number of revisions that are kept.
const ENTRIES_MAX: usize = 10;

/// The limit of their configurations as JSON, in bytes: an object may have 1.5 MiB in all.
const CONFIG_BYTES_MAX: usize = 256 * 1024;

/// The maximum length of a reason, in characters.
const MESSAGE_CHARS_MAX: usize = 1024;

/// The revisions that have served, the latest first; each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(Vec<HistoryEntry>);

/// A revision that has served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// The digest of bytes and configuration.
    pub revision: Digest,
    /// The digest of the bytes.
    pub digest: Digest,
    /// The configuration.
    pub config: Map<String, Value>,
}

/// The reason for the activation of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// It is declared.
    Declared,
    /// It served when the process before this one ended.
    Resumed,
    /// The one that serves is rolled back.
    RolledBack {
        /// The faults.
        why: String,
    },
}

/// The time of an event, and the generation of the spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time.
    pub now: Timestamp,
    /// The generation.
    pub generation: Option<i64>,
}

impl History {
    /// Restores the history from the status.
    pub fn of(entries: Vec<HistoryEntry>) -> Self {
        Self(entries)
    }

    /// Returns the entries for the status.
    pub fn entries(&self) -> &[HistoryEntry] {
        &self.0
    }

    /// The revisions that may serve again, the latest first: those that were not rolled back.
    pub fn past(&self) -> impl Iterator<Item = Past> {
        let stays = |entry: &&HistoryEntry| entry.verdict != HistoryVerdict::RolledBack;
        self.0.iter().filter(stays).filter_map(past)
    }

    /// The revisions that can be gone back to from the one that serves, the latest first.
    pub fn good(&self) -> impl Iterator<Item = Past> {
        let good = |entry: &&HistoryEntry| entry.verdict == HistoryVerdict::Good;
        self.0.iter().skip(1).filter(good).filter_map(past)
    }

    /// Returns whether the first passes of the latest revision are still being watched.
    pub fn is_on_trial(&self) -> bool {
        let latest = self.0.first();
        latest.is_some_and(|latest| latest.verdict == HistoryVerdict::Trial)
    }

    /// Takes note of a revision that begins to serve.
    ///
    /// A declared revision is on trial, unless it was active last: then it continues where it was.
    pub fn begin(&mut self, past: &Past, why: &Beginning, at: Moment) {
        if let Beginning::RolledBack { why } = why
            && let Some(latest) = self.0.first_mut()
        {
            latest.verdict = HistoryVerdict::RolledBack;
            latest.message = Some(why.chars().take(MESSAGE_CHARS_MAX).collect());
            latest.generation = at.generation;
        }
        let name = revision_name(&past.revision);
        let position = self.0.iter().position(|entry| entry.revision == name);
        let known = position.map(|position| (position, self.0.remove(position)));
        let entry = match known {
            Some((0, entry)) if entry.served_until.is_none() => HistoryEntry {
                verdict: resumed(entry.verdict),
                ..entry
            },
            Some((position, entry)) if position == 0 || *why != Beginning::Declared => {
                begun(past, resumed(entry.verdict), at)
            }
            Some(_) | None => begun(past, HistoryVerdict::Trial, at),
        };
        self.end(at);
        self.0.insert(0, entry);
        self.shorten();
    }

    /// Takes note that nothing serves any more.
    pub fn end(&mut self, at: Moment) {
        if let Some(latest) = self.0.first_mut() {
            latest
                .served_until
                .get_or_insert_with(|| whole_seconds(at.now));
        }
    }

    /// Takes note that the first passes of the latest revision went well.
    pub fn pass(&mut self) {
        if let Some(latest) = self.0.first_mut()
            && latest.verdict == HistoryVerdict::Trial
        {
            latest.verdict = HistoryVerdict::Good;
        }
    }

    /// Returns the reason of the rollback of a revision under this generation of the spec, if any.
    pub fn rolled_back(&self, revision: &Digest, generation: Option<i64>) -> Option<String> {
        let name = revision_name(revision);
        let entry = self.0.iter().find(|entry| entry.revision == name)?;
        because(entry, generation)
    }

    /// Returns the reason of the rollback of the revision before the latest one, if it was under this generation.
    pub fn last_rollback(&self, generation: Option<i64>) -> Option<String> {
        because(self.0.get(1)?, generation)
    }

    /// The digests of all bytes.
    pub fn digests(&self) -> impl Iterator<Item = Digest> {
        self.0.iter().filter_map(|entry| entry.digest.parse().ok())
    }

    fn shorten(&mut self) {
        let mut bytes = 0;
        let count = self.0.iter().take(ENTRIES_MAX).take_while(|entry| {
            bytes += Value::Object(entry.config.clone()).to_string().len();
            bytes <= CONFIG_BYTES_MAX
        });
        let count = count.count();
        self.0.truncate(count);
    }
}

fn begun(past: &Past, verdict: HistoryVerdict, at: Moment) -> HistoryEntry {
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

/// Returns the verdict of a revision that is activated again after a restart or a declaration.
const fn resumed(verdict: HistoryVerdict) -> HistoryVerdict {
    match verdict {
        HistoryVerdict::Good => HistoryVerdict::Good,
        HistoryVerdict::Trial | HistoryVerdict::RolledBack => HistoryVerdict::Trial,
    }
}

/// Returns the revision of an entry; none if its digest and configuration do not give its name, as in an edited one.
fn past(entry: &HistoryEntry) -> Option<Past> {
    let digest: Digest = entry.digest.parse().ok()?;
    let revision = revision_of(&digest, &entry.config);
    (revision_name(&revision) == entry.revision).then(|| Past {
        revision,
        digest,
        config: entry.config.clone(),
    })
}

fn because(entry: &HistoryEntry, generation: Option<i64>) -> Option<String> {
    let is_so = entry.verdict == HistoryVerdict::RolledBack && entry.generation == generation;
    let why = entry.message.as_deref().unwrap_or_default();
    is_so.then(|| {
        format!(
            "revision {} was rolled back, because {why}; it is tried again when the Plugin's spec is changed",
            entry.revision
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past_of(text: &str) -> Past {
        let digest = Digest::of(text.as_bytes());
        let config = Map::from_iter([("of".to_owned(), text.into())]);
        Past {
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

    fn back() -> Beginning {
        Beginning::RolledBack {
            why: "it trapped".to_owned(),
        }
    }

    /// Each entry as its component, the time and the verdict.
    #[track_caller]
    fn check(history: &History, expected: &[&str]) {
        let show = |entry: &HistoryEntry| {
            let until = entry.served_until.as_ref();
            let until = until.map_or_else(String::new, |until| until.0.as_second().to_string());
            let of = entry.config["of"].as_str().unwrap();
            let from = entry.served_from.0.as_second();
            format!("{of} {from}-{until} {:?}", entry.verdict)
        };
        let shown: Vec<String> = history.entries().iter().map(show).collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn every_revision_is_on_trial_and_is_noted_once() {
        let mut history = History::default();
        history.begin(&past_of("a"), &Beginning::Declared, at(10));
        assert!(history.is_on_trial());
        history.pass();
        assert!(!history.is_on_trial());
        history.begin(&past_of("b"), &Beginning::Declared, at(20));
        check(&history, &["b 20- Trial", "a 10-20 Good"]);
        history.pass();
        history.begin(&past_of("a"), &Beginning::Declared, at(30));
        check(&history, &["a 30- Trial", "b 20-30 Good"]);
        history.end(at(40));
        history.end(at(50));
        check(&history, &["a 30-40 Trial", "b 20-30 Good"]);
    }

    #[test]
    fn what_served_last_goes_on_where_it_was() {
        let mut history = History::default();
        history.begin(&past_of("a"), &Beginning::Declared, at(10));
        history.pass();
        for why in [Beginning::Declared, Beginning::Resumed] {
            let mut again = history.clone();
            again.begin(&past_of("a"), &why, at(20));
            assert_eq!(again, history);
            again.end(at(30));
            again.begin(&past_of("a"), &why, at(40));
            check(&again, &["a 40- Good"]);
        }
        history.begin(&past_of("b"), &Beginning::Declared, at(50));
        let mut again = history.clone();
        again.begin(&past_of("b"), &Beginning::Resumed, at(60));
        assert_eq!(again, history);
        // The one before, because the latest is not to be had.
        again.begin(&past_of("a"), &Beginning::Resumed, at(70));
        check(&again, &["a 70- Good", "b 50-70 Trial"]);
    }

    #[test]
    fn what_was_rolled_back_waits_for_another_spec() {
        let mut history = History::default();
        history.begin(&past_of("a"), &Beginning::Declared, at(10));
        history.pass();
        history.begin(&past_of("b"), &Beginning::Declared, at(20));
        let good: Vec<Past> = history.good().collect();
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

        // Another one makes it history, but it is still not tried again.
        let mut other = history.clone();
        other.begin(&past_of("c"), &Beginning::Declared, at(22));
        assert_eq!(other.last_rollback(Some(2)), None);
        assert!(other.rolled_back(&b, Some(2)).is_some());
        history.begin(&past_of("b"), &Beginning::Declared, at(30));
        check(&history, &["b 30- Trial", "a 21-30 Good"]);
    }

    #[test]
    fn it_neither_grows_nor_believes_what_no_host_wrote() {
        let mut history = History::default();
        for number in 0..20 {
            history.begin(
                &past_of(&number.to_string()),
                &Beginning::Declared,
                at(number),
            );
        }
        assert_eq!(history.entries().len(), ENTRIES_MAX);
        assert_eq!(history.past().next(), Some(past_of("19")));
        let mut large = past_of("large");
        large
            .config
            .insert("text".to_owned(), "x".repeat(200_000).into());
        large.revision = revision_of(&large.digest, &large.config);
        history.begin(&large, &Beginning::Declared, at(20));
        let mut larger = large.clone();
        larger.config.insert("more".to_owned(), 1.into());
        larger.revision = revision_of(&larger.digest, &larger.config);
        history.begin(&larger, &Beginning::Declared, at(21));
        assert_eq!(history.entries().len(), 1);

        let mut entries = history.entries().to_vec();
        entries[0].config.clear();
        assert_eq!(History::of(entries.clone()).past().next(), None);
        entries[0].digest = "none".to_owned();
        let history = History::of(entries);
        assert_eq!(history.past().next(), None);
        assert_eq!(history.digests().count(), 0);
    }
}
