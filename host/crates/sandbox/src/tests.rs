//! Guests that behave and guests that do not, in the real engine.

mod artifacts;
mod calls;
mod compiling;
mod configurations;
mod descriptions;
mod letting_go;
mod misbehaving;
mod pools;
mod wasi;

use std::sync::{Arc, LazyLock};

use innkeeper_model::{Gvk, Limits, ListSelector, ObjectRef, Phase, ReadFailure, Reads};

use super::{
    testing::{Guest, V, checker, described, engine},
    *,
};

/// One engine for all tests, as in the host.
static ENGINE: LazyLock<Engine> = LazyLock::new(|| engine(Metering::Epochs));

const CONTEXT: Context = Context {
    now_ms: 1_700_000_000_123,
    seed: [9; 32],
};

/// Answers every read with the same object, or fails as asked, and counts.
#[derive(Clone, Debug, Default)]
struct FakeReads {
    fails: Option<ReadFailure>,
    asked: Vec<String>,
}

impl FakeReads {
    fn failing(failure: ReadFailure) -> Self {
        Self {
            fails: Some(failure),
            asked: Vec::new(),
        }
    }
}

impl Reads for FakeReads {
    fn get(&mut self, reference: &ObjectRef) -> Result<Option<Arc<str>>, ReadFailure> {
        self.asked
            .push(format!("{} {}", reference.kind, reference.name));
        self.fails
            .clone()
            .map_or_else(|| Ok(Some(Arc::from(r#"{"kind":"Secret"}"#))), Err)
    }

    fn list(&mut self, selector: &ListSelector) -> Result<Vec<Arc<str>>, ReadFailure> {
        let label_selector = selector.label_selector.as_deref().unwrap_or("*");
        self.asked
            .push(format!("{} [{label_selector}]", selector.kind));
        self.fails
            .clone()
            .map_or_else(|| Ok(vec![Arc::from("{}"), Arc::from("{}")]), Err)
    }
}

fn compiled(guest: Guest) -> artifact::Artifact {
    artifact::compile(&ENGINE, &guest.build(), &artifact::Limits::default(), None).unwrap()
}

fn plugin(guest: Guest) -> Plugin {
    plugin_of(&ENGINE, guest)
}

fn plugin_of(engine: &Engine, guest: Guest) -> Plugin {
    described(engine, &guest.build())
        .configure(&serde_json::Map::new(), &checker())
        .unwrap()
}

impl Plugin {
    /// Calls the plugin with the usual request.
    fn called(&self, reads: FakeReads, limits: &Limits) -> (CallReport, FakeReads) {
        self.call(&request(), reads, &CONTEXT, limits).unwrap()
    }
}

/// Returns why a component cannot be described.
fn description_error(bytes: &[u8]) -> Error {
    let limits = artifact::Limits::default();
    let artifact = artifact::compile(&ENGINE, bytes, &limits, None).unwrap();
    Described::load(&ENGINE, &artifact, &Limits::default())
        .err()
        .unwrap()
}

fn request() -> Request<'static> {
    Request {
        parent: r#"{"kind":"Web"}"#,
        children: &[],
        phase: Phase::Reconcile,
        namespace_terminating: false,
        predict: false,
    }
}

fn call(guest: Guest) -> CallReport {
    call_with(guest, &Limits::default())
}

fn call_with(guest: Guest, limits: &Limits) -> CallReport {
    plugin(guest).called(FakeReads::default(), limits).0
}

fn secrets() -> Gvk {
    Gvk::new("", "v1", "Secret")
}
