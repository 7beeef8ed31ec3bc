//! The status of a Plugin that another client overwrites again and again: the host repeats it less and less often, and an
//! Event names the other side, because a condition would be overwritten as well.

use std::time::Duration;

use innkeeper_apply::{MANAGER, Written};
use innkeeper_model::{Digest, Event, EventType, Object, error_chain};
use innkeeper_plan::{Contention, RepeatableWrite, StatusWrite, Subject, Undone};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{Manager, PluginState, kind, report::stored_status};

/// Returns the write of a Plugin's status, as the ledger compares it.
pub(super) fn status_write(object: &Object, state: &PluginState) -> RepeatableWrite {
    let digest = || digest(stored_status(object));
    state.repeats.status_write(object, digest)
}

/// Records a status that was written.
pub(super) fn record(state: &mut PluginState, write: RepeatableWrite, answer: &Written) {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        status: Map<String, Value>,
    }
    state.repeats.record(write, Instant::now().into_std());
    if let Ok(Answer { status }) = serde_json::from_str(&answer.json) {
        let digest = digest(status);
        state.repeats.set_status(&digest, answer.resource_version);
    }
}

fn digest(status: Map<String, Value>) -> String {
    Digest::of(Value::Object(status).to_string().as_bytes()).to_hex()
}

impl Manager {
    /// Returns the time until a contested status may be written; none if it may be now.
    pub(super) async fn contested(
        &self,
        object: &Object,
        state: &mut PluginState,
        (repeated, write): (&RepeatableWrite, &StatusWrite),
    ) -> Option<Duration> {
        let wait = state.repeats.wait(repeated, Instant::now().into_std())?;
        if state.repeats.is_unexplained(&Subject::Status)
            && let Some(undone) = self.explain(object, write).await
        {
            state.repeats.explain(&Subject::Status, undone.clone());
            let synced = Contention {
                undone: vec![undone],
                wait,
            }
            .synced();
            warn!(plugin = %object.name, message = synced.message, "the status of a Plugin is overwritten");
            let event = Event {
                kind: EventType::Warning,
                reason: synced.reason,
                message: synced.message,
            };
            self.record_event(object, &event).await;
        }
        Some(wait)
    }

    /// Reads who overwrites the status; none if the Plugin cannot be read.
    async fn explain(&self, object: &Object, write: &StatusWrite) -> Option<Undone> {
        let live = self.cluster().live_get(&kind(), None, &object.name).await;
        let live = live.inspect_err(|error| {
            debug!(plugin = %object.name, error = %error_chain(error), "failed to read who overwrites the status of a Plugin");
        });
        let status = Value::Object(write.status.clone());
        let body = Map::from_iter([("status".to_owned(), status)]);
        let undone = Undone::changed(&Subject::Status, &body, &live.ok()??, &[MANAGER]);
        Some(undone)
    }
}
