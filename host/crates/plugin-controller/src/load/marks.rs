//! Loads during which the host crashed: which ones may begin, and when. Pure.
//!
//! A load processes untrusted bytes. If they crash the host, it would crash at every start and serve nobody. So a load
//! is marked while it runs, and a mark that exists when a process starts belongs to a load that did not end.

use std::time::Duration;

use innkeeper_model::Digest;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The version of the mark format.
const VERSION: u32 = 1;

/// Number of consecutive crashes during a load that delay the next attempt. The first crash may have any cause, such as
/// a node restart.
const ENDS_MAX: u32 = 2;

/// The wait after that many ends, doubled by each further one.
const WAIT_MIN: Duration = Duration::from_mins(1);

/// The longest wait.
const WAIT_MAX: Duration = Duration::from_hours(1);

/// Marks per Plugin: for the declared component, two earlier revisions, and one more.
const MARKS_MAX: usize = 4;

/// Marks for one Plugin generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoadMarks {
    version: u32,
    /// The Plugin's generation: a changed spec resets the counts.
    generation: Option<i64>,
    loads: Vec<LoadMark>,
}

/// A load that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadMark {
    /// The bytes from the cache directory; none for the declared component.
    kept: Option<String>,
    /// Number of times in a row that the load began and did not end.
    begun: u32,
    /// The last begin, in seconds since 1970.
    at: i64,
}

/// The decision about a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadDecision {
    /// It may begin.
    Begin,
    /// It may begin, but not beside another suspected load: if it crashes the host again, only its own mark
    /// counts that.
    Alone,
    /// The host crashed this many times during the load, so it must wait.
    Wait {
        ends: u32,
        /// The whole wait since the last begin.
        wait: Duration,
        /// The remaining wait.
        rest: Duration,
    },
}

impl LoadMarks {
    /// Reads a generation's marks. Text in another form, and marks from another generation, count as none.
    pub(crate) fn read(text: Option<&[u8]>, generation: Option<i64>) -> Self {
        text.and_then(|text| serde_json::from_slice::<Self>(text).ok())
            .filter(|marks| marks.version == VERSION && marks.generation == generation)
            .unwrap_or(Self {
                version: VERSION,
                generation,
                loads: Vec::new(),
            })
    }

    /// Returns the text for the marks; none without a mark.
    pub(crate) fn text(&self) -> Option<Vec<u8>> {
        if self.loads.is_empty() {
            return None;
        }
        // Never fails: all fields have a form in JSON.
        serde_json::to_vec(self).ok()
    }

    /// Decides whether to load the declared component, or cached bytes.
    pub(crate) fn decide(&self, kept: Option<&Digest>, now: Timestamp) -> LoadDecision {
        let Some(mark) = self.loads.iter().find(|mark| mark.is_for(kept)) else {
            return LoadDecision::Begin;
        };
        let Some(doublings) = mark.begun.checked_sub(ENDS_MAX) else {
            return LoadDecision::Alone;
        };
        let wait = 2_u32
            .checked_pow(doublings)
            .and_then(|factor| WAIT_MIN.checked_mul(factor))
            .map_or(WAIT_MAX, |wait| wait.min(WAIT_MAX));
        // After the clock was set back, the mark's time is in the future: begin the load rather than wait for that
        // time.
        let elapsed = u64::try_from(now.as_second().saturating_sub(mark.at))
            .map_or(wait, Duration::from_secs);
        match wait.saturating_sub(elapsed) {
            Duration::ZERO => LoadDecision::Alone,
            rest => LoadDecision::Wait {
                ends: mark.begun,
                wait,
                rest,
            },
        }
    }

    /// Records that a load begins.
    pub(crate) fn begin(&mut self, kept: Option<&Digest>, now: Timestamp) {
        let before = self
            .loads
            .iter()
            .position(|mark| mark.is_for(kept))
            .map(|index| self.loads.remove(index));
        self.loads.push(LoadMark {
            kept: kept.map(Digest::to_string),
            // At the begin, because a crash leaves nobody to count it.
            begun: before.map_or(0, |mark| mark.begun).saturating_add(1),
            at: now.as_second(),
        });
        // The new mark is last, so the oldest one goes.
        if self.loads.len() > MARKS_MAX {
            self.loads.remove(0);
        }
    }

    /// Records that a load has ended, with any result.
    pub(crate) fn end(&mut self, kept: Option<&Digest>) {
        self.loads.retain(|mark| !mark.is_for(kept));
    }
}

impl LoadMark {
    fn is_for(&self, kept: Option<&Digest>) -> bool {
        self.kept == kept.map(Digest::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Returns the marks after this many begins without an end, the last one at second 0.
    fn begun(count: u32) -> LoadMarks {
        let mut marks = LoadMarks::read(None, Some(1));
        for _ in 0..count {
            let text = marks.text();
            marks = LoadMarks::read(text.as_deref(), Some(1));
            marks.begin(None, at(0));
        }
        marks
    }

    #[test]
    fn a_load_waits_after_two_ends_of_the_host_and_ever_longer() {
        let wait = |ends, minutes: u64, rest| LoadDecision::Wait {
            ends,
            wait: Duration::from_mins(minutes),
            rest: Duration::from_secs(rest),
        };
        for (ends, now, expected) in [
            (0, 0, LoadDecision::Begin),
            (1, 0, LoadDecision::Alone),
            (1, 1000, LoadDecision::Alone),
            (2, 0, wait(2, 1, 60)),
            (2, 59, wait(2, 1, 1)),
            (2, 60, LoadDecision::Alone),
            (3, 60, wait(3, 2, 60)),
            (4, 0, wait(4, 4, 240)),
            (7, 0, wait(7, 32, 1920)),
            (8, 0, wait(8, 60, 3600)),
            (8, 3600, LoadDecision::Alone),
            (100, 0, wait(100, 60, 3600)),
            // The clock was set back.
            (2, -1, LoadDecision::Alone),
        ] {
            let decision = begun(ends).decide(None, at(now));
            assert_eq!(decision, expected, "{ends} {now}");
        }
    }

    #[test]
    fn a_changed_spec_an_end_and_another_component_begin_at_once() {
        let marks = begun(5);
        let text = marks.text();
        let read = |generation| LoadMarks::read(text.as_deref(), generation);
        assert_eq!(read(Some(1)), marks);
        for generation in [Some(2), None] {
            assert_eq!(read(generation).decide(None, at(0)), LoadDecision::Begin);
        }
        let digest = Digest::hash(b"kept");
        let mut marks = read(Some(1));
        assert_eq!(marks.decide(Some(&digest), at(0)), LoadDecision::Begin);
        marks.begin(Some(&digest), at(0));
        assert_eq!(marks.decide(Some(&digest), at(0)), LoadDecision::Alone);
        marks.end(None);
        assert_eq!(marks.decide(None, at(0)), LoadDecision::Begin);
        assert_eq!(marks.decide(Some(&digest), at(0)), LoadDecision::Alone);
        marks.end(Some(&digest));
        assert_eq!(marks.text(), None);
    }

    #[test]
    fn marks_in_another_form_count_as_none() {
        let [version, more] = ["\"version\":1", "\"loads\""];
        let good = String::from_utf8(begun(3).text().unwrap()).unwrap();
        for text in [
            String::new(),
            "{".to_owned(),
            "[]".to_owned(),
            good.replace(version, "\"version\":2"),
            good.replace(more, "\"more\":1,\"loads\""),
            good.replace("\"begun\":3", "\"begun\":-3"),
            good.replace("\"begun\":3", "\"begun\":1e99"),
        ] {
            assert_ne!(text, good);
            let marks = LoadMarks::read(Some(text.as_bytes()), Some(1));
            assert_eq!(marks.decide(None, at(0)), LoadDecision::Begin, "{text}");
        }
    }

    #[test]
    fn the_marks_of_a_plugin_are_bounded() {
        let mut marks = LoadMarks::read(None, Some(i64::MAX));
        for number in 0..100_u32 {
            marks.begin(Some(&Digest::hash(&number.to_be_bytes())), Timestamp::MAX);
        }
        assert_eq!(marks.loads.len(), MARKS_MAX);
        assert!(marks.text().unwrap().len() < 1024);
    }
}
