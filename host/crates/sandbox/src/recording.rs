//! One call as text: the whole input and the answer, so that the call can be replayed elsewhere.
//!
//! A host logs it on request, and `innkeeper replay` repeats it.
//! Objects are kept byte by byte as the guest received them, because only the same input gives the same answer.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use innkeeper_model::{
    Answer, Gvk, ListSelector, ObjectRef, Phase, PluginName, ReadFailure, ReadKey, Reads, ZoneTime,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use super::{Context, Job, ObservedChild, Plugin, call_output::CallOutput};

/// A call as text.
///
/// The format may change with every host version: it is for debugging, not for archives.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recording {
    #[serde(rename = "recording")]
    form: RecordingFormat,
    /// The name under which the plugin was active.
    pub plugin: String,
    /// The digest over bytes and configuration.
    pub revision: String,
    /// True if it holds secrets: the random seed, from which the guest may have made passwords or keys.
    pub secret: bool,
    phase: Phase,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    namespace_terminating: bool,
    now_ms: u64,
    /// The seed for `random`; none if it was not called.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<String>,
    config: Box<RawValue>,
    parent: Box<RawValue>,
    children: Vec<RecordedChild>,
    reads: Vec<RecordedRead>,
    /// The call's outcome.
    pub answer: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum RecordingFormat {
    #[serde(rename = "v1")]
    V1,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct RecordedChild {
    key: Option<String>,
    retained: bool,
    object: Box<RawValue>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct RecordedRead {
    read: ReadKey,
    answer: ReadAnswer,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ReadAnswer {
    Object(Option<Box<RawValue>>),
    List(Vec<Box<RawValue>>),
    Offset(Option<i32>),
    NotGranted,
    NotServed,
    InvalidSelector,
}

/// A call's input, kept until the call has ended.
pub struct Recorder {
    parent: Arc<str>,
    children: Vec<ObservedChild>,
    phase: Phase,
    namespace_terminating: bool,
    context: Context,
}

impl Recorder {
    /// Copies a call's input.
    pub fn new<R>(job: &Job<R>) -> Self {
        Self {
            parent: Arc::clone(&job.parent),
            children: job.children.clone(),
            phase: job.phase,
            namespace_terminating: job.namespace_terminating,
            context: job.context,
        }
    }

    /// Returns the recording, with reads and outcome.
    pub fn finish(
        self,
        name: &PluginName,
        plugin: &Plugin,
        reads: &[(ReadKey, Answer)],
        output: &CallOutput,
        used_random: bool,
    ) -> Recording {
        let child = |child: &ObservedChild| RecordedChild {
            key: child.key.as_deref().map(str::to_owned),
            retained: child.retained,
            object: raw(&child.object),
        };
        Recording {
            form: RecordingFormat::V1,
            plugin: name.as_str().to_owned(),
            revision: plugin.revision().to_string(),
            secret: used_random,
            phase: self.phase,
            namespace_terminating: self.namespace_terminating,
            now_ms: self.context.now_ms,
            // Left out where it is not needed: a guest makes passwords from it.
            seed: used_random.then(|| STANDARD.encode(self.context.seed)),
            config: raw(plugin.config()),
            parent: raw(&self.parent),
            children: self.children.iter().map(child).collect(),
            reads: reads
                .iter()
                .map(|(key, answer)| RecordedRead {
                    read: key.clone(),
                    answer: answer.into(),
                })
                .collect(),
            answer: output.to_json(),
        }
    }
}

impl Recording {
    /// Returns the configuration; empty if it is not an object.
    pub fn config(&self) -> Map<String, Value> {
        serde_json::from_str(self.config.get()).unwrap_or_default()
    }

    /// Returns the parent as the guest received it.
    pub fn parent(&self) -> &str {
        self.parent.get()
    }

    /// Returns the children as the guest received them.
    pub fn children(&self) -> Vec<ObservedChild> {
        let child = |child: &RecordedChild| ObservedChild {
            key: child.key.as_deref().map(Arc::from),
            retained: child.retained,
            object: child.object.get().into(),
        };
        self.children.iter().map(child).collect()
    }

    /// Returns the pass's phase.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns true if nothing could be created in the parent's namespace, because it was being deleted.
    pub const fn namespace_terminating(&self) -> bool {
        self.namespace_terminating
    }

    /// Returns the pass's clock and seed; the seed is zero if the guest did not ask for random bytes.
    pub fn context(&self) -> Context {
        Context {
            now_ms: self.now_ms,
            seed: self
                .seed
                .as_ref()
                .and_then(|seed| STANDARD.decode(seed).ok())
                .and_then(|seed| seed.try_into().ok())
                .unwrap_or_default(),
        }
    }

    /// Returns reads with the recorded answers.
    pub fn reads(&self) -> RecordedReads {
        RecordedReads {
            answers: self
                .reads
                .iter()
                .cloned()
                .map(|read| (read.read, read.answer))
                .collect(),
            unknown: Vec::new(),
        }
    }
}

/// Answers reads from a recording.
#[derive(Debug)]
pub struct RecordedReads {
    answers: BTreeMap<ReadKey, ReadAnswer>,
    unknown: Vec<ReadKey>,
}

impl RecordedReads {
    /// Returns the reads that the recording does not have, each once. Their answer was "not granted".
    pub fn unknown(&self) -> &[ReadKey] {
        &self.unknown
    }

    fn ask(&mut self, key: ReadKey) -> ReadAnswer {
        if let Some(answer) = self.answers.get(&key) {
            return answer.clone();
        }
        if !self.unknown.contains(&key) {
            self.unknown.push(key);
        }
        ReadAnswer::NotGranted
    }
}

impl Reads for RecordedReads {
    fn get(&mut self, reference: &ObjectRef) -> Result<Option<Arc<str>>, ReadFailure> {
        match self.ask(ReadKey::Get(reference.clone())) {
            ReadAnswer::Object(object) => Ok(object.map(|object| object.get().into())),
            other => Err(other.failure(&reference.kind, None)),
        }
    }

    fn list(&mut self, selector: &ListSelector) -> Result<Vec<Arc<str>>, ReadFailure> {
        match self.ask(ReadKey::List(selector.clone())) {
            ReadAnswer::List(objects) => {
                Ok(objects.iter().map(|object| object.get().into()).collect())
            }
            other => Err(other.failure(&selector.kind, selector.label_selector.as_deref())),
        }
    }

    fn zone_offset(&mut self, time: &ZoneTime) -> Option<i32> {
        match self.ask(ReadKey::ZoneOffset(time.clone())) {
            ReadAnswer::Offset(offset) => offset,
            _ => None,
        }
    }
}

impl ReadAnswer {
    fn failure(&self, kind: &Gvk, selector: Option<&str>) -> ReadFailure {
        match self {
            Self::NotServed => ReadFailure::NotServed(kind.clone()),
            Self::InvalidSelector => ReadFailure::InvalidSelector {
                selector: selector.unwrap_or_default().to_owned(),
            },
            Self::NotGranted | Self::Object(_) | Self::List(_) | Self::Offset(_) => {
                ReadFailure::NotGranted(kind.clone())
            }
        }
    }
}

impl From<&Answer> for ReadAnswer {
    fn from(answer: &Answer) -> Self {
        match answer {
            Answer::Object(object) => Self::Object(object.as_deref().map(raw)),
            Answer::List(objects) => Self::List(objects.iter().map(|text| raw(text)).collect()),
            Answer::Offset(offset) => Self::Offset(*offset),
            // A pass that waits for a kind is not recorded.
            Answer::Failed(
                ReadFailure::NotGranted(_)
                | ReadFailure::OutsideWatchedNamespaces { .. }
                | ReadFailure::NotSynced(_),
            ) => Self::NotGranted,
            Answer::Failed(ReadFailure::NotServed(_)) => Self::NotServed,
            Answer::Failed(ReadFailure::InvalidSelector { .. }) => Self::InvalidSelector,
        }
    }
}

/// Returns a cached text as JSON; `null` if it is not JSON.
fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{
        "recording": "v1", "plugin": "web", "revision": "sha256:00", "secret": true, "phase": "finalize",
        "nowMs": 7, "seed": "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=", "config": {"b": 1, "a": 2},
        "parent": {"z": 1.0, "a":  "as it is"},
        "children": [{"key": "one", "retained": true, "object": {"kind": "Secret"}}],
        "reads": [
            {"read": {"verb": "get", "apiVersion": "v1", "kind": "Pod", "namespace": "demo", "name": "a"}, "answer": {"object": null}},
            {"read": {"verb": "list", "apiVersion": "v1", "kind": "Pod", "namespace": null, "labelSelector": "a=b"}, "answer": {"list": [{"kind": "Pod"}]}},
            {"read": {"verb": "list", "apiVersion": "v1", "kind": "Node", "namespace": null, "labelSelector": null}, "answer": "notServed"},
            {"read": {"verb": "zoneOffset", "zone": "Europe/Berlin", "unixMs": 5}, "answer": {"offset": 7}}
        ],
        "answer": {"outcome": "keep"}
    }"#;

    fn recording() -> Recording {
        serde_json::from_str(TEXT).unwrap()
    }

    fn list(kind: &str, selector: Option<&str>) -> ListSelector {
        ListSelector {
            kind: Gvk::new("", "v1", kind),
            namespace: None,
            label_selector: selector.map(Arc::from),
        }
    }

    #[test]
    fn the_input_comes_back_byte_by_byte() {
        let recording = recording();
        assert_eq!(recording.parent(), r#"{"z": 1.0, "a":  "as it is"}"#);
        assert_eq!(recording.phase(), Phase::Finalize);
        let context = recording.context();
        assert_eq!((context.now_ms, context.seed), (7, [1; 32]));
        let child = ObservedChild {
            key: Some("one".into()),
            retained: true,
            object: r#"{"kind": "Secret"}"#.into(),
        };
        assert_eq!(recording.children(), [child]);
        let again = serde_json::to_string(&recording).unwrap();
        let again: Recording = serde_json::from_str(&again).unwrap();
        assert_eq!(again.parent(), recording.parent());
    }

    #[test]
    fn recorded_reads_are_answered_and_other_reads_are_listed() {
        let mut reads = recording().reads();
        let pod = ObjectRef {
            kind: Gvk::new("", "v1", "Pod"),
            namespace: Some("demo".into()),
            name: "a".into(),
        };
        assert_eq!(reads.get(&pod), Ok(None));
        let pods = reads.list(&list("Pod", Some("a=b"))).unwrap();
        assert_eq!(pods, [Arc::from(r#"{"kind": "Pod"}"#)]);
        let node = Gvk::new("", "v1", "Node");
        assert_eq!(
            reads.list(&list("Node", None)),
            Err(ReadFailure::NotServed(node))
        );
        // As recorded, whatever this host's data says.
        let mut time = ZoneTime {
            zone: "Europe/Berlin".into(),
            unix_ms: 5,
        };
        assert_eq!(reads.zone_offset(&time), Some(7));
        assert_eq!(reads.unknown(), []);
        time.unix_ms = 6;
        assert_eq!(reads.zone_offset(&time), None);
        assert_eq!(reads.unknown(), [ReadKey::ZoneOffset(time)]);
        let mut reads = recording().reads();
        let pods = list("Pod", None);
        for _ in 0..2 {
            let refused = reads.list(&pods);
            assert_eq!(refused, Err(ReadFailure::NotGranted(pods.kind.clone())));
        }
        assert_eq!(reads.unknown(), [ReadKey::List(pods)]);
    }

    #[test]
    fn an_unknown_format_is_refused() {
        let other = TEXT.replace("v1\", \"plugin", "v2\", \"plugin");
        let error = serde_json::from_str::<Recording>(&other).unwrap_err();
        assert!(
            error.to_string().contains("unknown variant `v2`"),
            "{error}"
        );
    }
}
