//! Answers one pass's reads from memory: constant throughout the pass, and recorded.

use std::{collections::BTreeMap, sync::Arc};

use innkeeper_model::{
    Answer, Gvk, ListSelector, ObjectRef, ReadFailure, ReadKey, ReadKind, Reads, ZoneTime,
};

use super::{reader::Reader, shared::CacheShared, state::ReadRecord};

/// A pass's distinct reads, in order of first occurrence.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// The reads with their answers.
    pub reads: Vec<(ReadKey, Answer)>,
    /// A kind that the pass read and that is not cached yet: the pass must run again from the start.
    pub not_cached: Option<Gvk>,
    pub(super) record: ReadRecord,
}

/// Answers one pass's reads.
///
/// Every read subscribes the parent at once. Committing the recording removes the subscriptions of earlier passes.
pub struct PassReads {
    shared: Arc<CacheShared>,
    reader: Reader,
    index: BTreeMap<ReadKey, usize>,
    recording: Recording,
}

impl PassReads {
    pub(super) fn new(shared: Arc<CacheShared>, reader: Reader, granted: Arc<[ReadKind]>) -> Self {
        Self {
            shared,
            reader,
            index: BTreeMap::new(),
            recording: Recording {
                record: ReadRecord::for_grants(granted),
                ..Recording::default()
            },
        }
    }

    /// Keeps the subscriptions of an earlier recording, whatever this pass reads.
    pub fn with_subscriptions(mut self, before: &Recording) -> Self {
        self.recording.record.subscribe_to(&before.record);
        self
    }

    /// Answers a read.
    pub fn read(&mut self, key: &ReadKey) -> Answer {
        let earlier = self
            .index
            .get(key)
            .and_then(|index| self.recording.reads.get(*index));
        if let Some((_, answer)) = earlier {
            return answer.clone();
        }
        let answer = self.answer(key);
        if let Answer::Failed(ReadFailure::NotSynced(kind)) = &answer {
            self.recording
                .not_cached
                .get_or_insert_with(|| kind.clone());
        }
        self.index.insert(key.clone(), self.recording.reads.len());
        self.recording.reads.push((key.clone(), answer.clone()));
        answer
    }

    /// Returns everything that was read.
    pub fn into_recording(self) -> Recording {
        self.recording
    }

    fn answer(&mut self, key: &ReadKey) -> Answer {
        let mut state = self.shared.state.lock();
        let record = &mut self.recording.record;
        let answer = match key {
            ReadKey::Get(reference) => state
                .table
                .read_object(&self.reader, reference, record)
                .map(Answer::Object),
            ReadKey::List(selector) => state
                .table
                .read_list(&self.reader, selector, record)
                .map(Answer::List),
            ReadKey::ZoneOffset(time) => Ok(Answer::Offset(time.offset())),
        };
        answer.unwrap_or_else(Answer::Failed)
    }
}

impl Reads for PassReads {
    fn get(&mut self, reference: &ObjectRef) -> Result<Option<Arc<str>>, ReadFailure> {
        match self.read(&ReadKey::Get(reference.clone())) {
            Answer::Object(object) => Ok(object),
            Answer::Failed(failure) => Err(failure),
            // Never happens, because the key decides the answer's type. The pass would run again.
            Answer::List(_) | Answer::Offset(_) => {
                Err(ReadFailure::NotSynced(reference.kind.clone()))
            }
        }
    }

    fn list(&mut self, selector: &ListSelector) -> Result<Vec<Arc<str>>, ReadFailure> {
        match self.read(&ReadKey::List(selector.clone())) {
            Answer::List(objects) => Ok(objects),
            Answer::Failed(failure) => Err(failure),
            Answer::Object(_) | Answer::Offset(_) => {
                Err(ReadFailure::NotSynced(selector.kind.clone()))
            }
        }
    }

    fn zone_offset(&mut self, time: &ZoneTime) -> Option<i32> {
        match self.read(&ReadKey::ZoneOffset(time.clone())) {
            Answer::Offset(offset) => offset,
            Answer::Object(_) | Answer::List(_) | Answer::Failed(_) => None,
        }
    }
}
