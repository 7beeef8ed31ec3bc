//! The ledger of writes that others undo: how often the host has repeated each write for a parent, and when it may repeat
//! it next.
//!
//! Pure: every call gets the time.
//! A repetition is recognised by this process's last successful write, never by a mark on the object, which the other
//! side may remove.
//! Without this ledger, two clients that insist on different states would write as fast as they can, for ever.

use std::time::{Duration, Instant};

use innkeeper_model::{ANNOTATION_APPLIED, Backoff, Object, ObjectId, Operation, ResourceVersion};

use super::contention::{Contention, Undone};

/// The number of repetitions, each within [`SOON`] of the one before, that makes a write contested.
///
/// A user who tries something out, or a controller that starts, causes fewer.
const REPEATS_MAX: u32 = 5;

/// The time after which a repetition is independent of the one before, and the last write is forgotten.
///
/// A controller that watches the object undoes a write within seconds, and a slow one within a minute.
const SOON: Duration = Duration::from_mins(1);

/// The first wait before a contested write is repeated; each further wait is twice as long.
///
/// Long enough to slow the other client down, short enough that a conflict that ends soon costs little.
const WAIT_MIN: Duration = Duration::from_secs(5);

/// The longest wait before the host repeats a contested write; as long as a failed pass's longest back-off.
const WAIT_MAX: Duration = Duration::from_mins(5);

/// A write's subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The host's finalizer on the parent.
    Finalizer,
    /// The parent's status.
    Status,
    /// A child: existence and fields.
    Child(ObjectId),
    /// A child's link to the parent.
    Owner(ObjectId),
}

/// A write, as the ledger compares it with the last one about the same subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepeatableWrite {
    subject: Subject,
    /// Equal for equal writes; none if `is_undone` alone decides.
    content: Option<Box<str>>,
    /// The parent's generation.
    generation: Option<i64>,
    /// True if the observed state proves that the last write is undone, whatever this write states.
    is_undone: bool,
}

impl RepeatableWrite {
    /// Returns an operation's write; none for operations that remove what the host made.
    pub fn for_operation(operation: &Operation, generation: Option<i64>) -> Option<Self> {
        let (subject, content, is_undone) = match operation {
            // The plan adds it only where it is missing: a second time, someone has removed it.
            Operation::AddFinalizer => (Subject::Finalizer, "", true),
            Operation::Create { id, body, .. } | Operation::Update { id, body, .. } => {
                let applied = body
                    .get("metadata")?
                    .get("annotations")?
                    .get(ANNOTATION_APPLIED)?;
                // A create means that the child of the last write is gone, whatever this one states.
                let creates = matches!(operation, Operation::Create { .. });
                (Subject::Child(id.clone()), applied.as_str()?, creates)
            }
            // The verb tells a transfer to the parent from one away from it, which undoes nothing.
            Operation::Transfer { id, .. } => (Subject::Owner(id.clone()), operation.verb(), false),
            Operation::Prune { .. } | Operation::RemoveFinalizer => return None,
        };
        Some(Self {
            subject,
            content: Some(content.into()),
            generation,
            is_undone,
        })
    }

    /// Returns what the write is about.
    pub const fn subject(&self) -> &Subject {
        &self.subject
    }
}

/// The recent writes for one parent.
///
/// Sorted by subject, because most parents have few: a map would take ten times the memory.
#[derive(Debug, Default)]
pub struct Repeats(Vec<Record>);

/// The last write about a subject, and the repetitions.
#[derive(Debug)]
struct Record {
    subject: Subject,
    /// The write's content; for a status, a digest over the host's part as the write left it.
    content: Box<str>,
    /// The version after a status write.
    version: ResourceVersion,
    generation: Option<i64>,
    written: Instant,
    /// The repetitions, each within [`SOON`] of the one before.
    count: u32,
    /// The last repetition.
    repeated: Instant,
    contest: Option<Box<Contest>>,
}

/// A contested write.
#[derive(Debug)]
struct Contest {
    waits: Backoff,
    /// The wait before the next repetition.
    wait: Duration,
    /// The last repetition's cause; none until a live read has found it.
    undone: Option<Undone>,
}

impl Record {
    fn new(write: RepeatableWrite, now: Instant) -> Self {
        Self {
            subject: write.subject,
            content: write.content.unwrap_or_default(),
            version: ResourceVersion::default(),
            generation: write.generation,
            written: now,
            count: 0,
            repeated: now,
            contest: None,
        }
    }

    /// Returns true if a write repeats this one.
    ///
    /// New content for a new parent generation is the user's edit, even if the last write was undone.
    fn is_repeated_by(&self, write: &RepeatableWrite) -> bool {
        write.content.as_ref() == Some(&self.content)
            || (write.is_undone && self.generation == write.generation)
    }

    /// Returns when the next repetition may follow; none if at once.
    fn due(&self) -> Option<Instant> {
        let contest = self.contest.as_ref()?;
        Some(self.repeated + contest.wait)
    }

    /// Returns the time at which the record is forgotten.
    ///
    /// A contest lasts twice as long as the wait: in the first half the host leaves the subject alone, so the other side
    /// has no reason to write; only a quiet second half shows that it has stopped.
    fn end(&self) -> Instant {
        let contest_end =
            (self.contest.as_ref()).map(|contest| self.repeated + SOON.max(contest.wait * 2));
        let end = self.written + SOON;
        contest_end.map_or(end, |contest_end| contest_end.max(end))
    }
}

impl Repeats {
    /// Returns the write of a status of the observed parent. It repeats the last one if the host's part of the status, with
    /// this digest, is not as that one left it.
    pub fn status_write(
        &self,
        parent: &Object,
        digest: impl FnOnce() -> String,
    ) -> RepeatableWrite {
        let last = (self.get(&Subject::Status))
            // The content is empty until the answer is known, and a parent from before the write does not show what
            // became of it.
            .filter(|last| !last.content.is_empty() && last.version < parent.resource_version);
        RepeatableWrite {
            subject: Subject::Status,
            content: None,
            generation: parent.generation,
            is_undone: last.is_some_and(|last| *last.content != *digest()),
        }
    }

    /// Records a successful write; returns true if the write becomes a contested one by it.
    pub fn record(&mut self, write: RepeatableWrite, now: Instant) -> bool {
        self.forget_ended(now);
        let at = match self.place(&write.subject) {
            Ok(at) => at,
            Err(at) => {
                self.0.insert(at, Record::new(write, now));
                return false;
            }
        };
        let record = &mut self.0[at];
        let is_repeat = record.is_repeated_by(&write);
        record.content = write.content.unwrap_or_default();
        record.generation = write.generation;
        record.written = now;
        if !is_repeat {
            return false;
        }
        let is_series = record.contest.is_some() || now < record.repeated + SOON;
        record.count = if is_series {
            record.count.saturating_add(1)
        } else {
            1
        };
        record.repeated = now;
        if record.count < REPEATS_MAX {
            return false;
        }
        let becomes = record.contest.is_none();
        let contest = record.contest.get_or_insert_with(|| {
            Box::new(Contest {
                waits: Backoff::new(WAIT_MIN, WAIT_MAX),
                wait: Duration::ZERO,
                undone: None,
            })
        });
        contest.wait = contest.waits.delay();
        becomes
    }

    /// Returns the time until a write may follow; none if it may now.
    pub fn wait(&self, write: &RepeatableWrite, now: Instant) -> Option<Duration> {
        let record = self.get(&write.subject)?;
        let due = record.due().filter(|_| record.is_repeated_by(write))?;
        Some(due.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// Sets the digest over the host's part of the status, as the last write left it in this version.
    pub fn set_status(&mut self, digest: &str, version: ResourceVersion) {
        if let Ok(at) = self.place(&Subject::Status) {
            self.0[at].content = digest.into();
            self.0[at].version = version;
        }
    }

    /// Returns true if a contest's cause has not been found yet.
    pub fn is_unexplained(&self, subject: &Subject) -> bool {
        let contest = self.get(subject).and_then(|record| record.contest.as_ref());
        contest.is_some_and(|contest| contest.undone.is_none())
    }

    /// Sets a contest's cause.
    pub fn explain(&mut self, subject: &Subject, undone: Undone) {
        if let Ok(at) = self.place(subject)
            && let Some(contest) = &mut self.0[at].contest
        {
            contest.undone = Some(undone);
        }
    }

    /// Forgets a child that the host itself has deleted.
    pub fn forget(&mut self, child: &ObjectId) {
        self.0.retain(|record| !matches!(&record.subject, Subject::Child(id) | Subject::Owner(id) if id == child));
    }

    /// Returns the contested writes, with the time until this list changes; none without one.
    pub fn contention(&mut self, now: Instant) -> Option<Contention> {
        self.forget_ended(now);
        let mut undone = Vec::new();
        let mut next: Option<Instant> = None;
        for record in &self.0 {
            let Some(contest) = &record.contest else {
                continue;
            };
            let cause = contest.undone.clone();
            undone.push(cause.unwrap_or_else(|| Undone::unexplained(&record.subject)));
            // The list changes when the write may be repeated and, after that, when the record ends.
            let change = record
                .due()
                .filter(|due| *due > now)
                .unwrap_or_else(|| record.end());
            next = Some(next.map_or(change, |next| next.min(change)));
        }
        Some(Contention {
            undone,
            wait: next?.saturating_duration_since(now),
        })
    }

    /// Forgets what no later write can repeat.
    pub fn forget_ended(&mut self, now: Instant) {
        self.0.retain(|record| now < record.end());
        if self.0.is_empty() {
            // `retain` keeps the memory, and most parents have no write after their first ones.
            self.0 = Vec::new();
        }
    }

    fn get(&self, subject: &Subject) -> Option<&Record> {
        self.place(subject).ok().map(|at| &self.0[at])
    }

    fn place(&self, subject: &Subject) -> Result<usize, usize> {
        self.0
            .binary_search_by(|record| record.subject.cmp(subject))
    }
}

#[cfg(test)]
mod tests;
