//! Input keys, and whole histories of passes with and without memory.

use std::time::Duration;

use innkeeper_model::{
    ApplyPolicy, Child, Desired, ListSelector, ObjectRef, Outcome, RemovalPolicy, Report,
    Resources, Retry, ZoneTime,
};
use innkeeper_plan::{
    self as plan, Effects, WriteFailure,
    tests::{
        build::{Scene, child, config_map, observed, scene},
        server::Server,
    },
};
use proptest::{collection, prelude::*};
use serde_json::{Value, json};

use super::*;

/// A parent with children, the objects that the guest reads, and a host that runs passes.
struct Model {
    scene: Scene,
    server: Server,
    related: BTreeMap<u8, String>,
    clock: u64,
    /// The number of next writes that fail.
    refusals: u8,
    memory: Option<Memory>,
    calls: u32,
    writes: Vec<String>,
}

/// An event between two passes.
#[derive(Clone, Debug)]
enum Edit {
    Spec { follows: u8, children: u8, mode: u8 },
    Related(u8, Option<u8>),
    Foreign { child: u8, value: Option<u8> },
    Disowned(u8),
    Deleted(u8),
    Available(bool),
    Served(bool),
    Refuse(u8),
    Tick,
    Nothing,
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        3 => (0..3_u8, 0..3_u8, 0..5_u8)
            .prop_map(|(follows, children, mode)| Edit::Spec { follows, children, mode }),
        3 => (0..3_u8, prop::option::of(0..5_u8)).prop_map(|(name, value)| Edit::Related(name, value)),
        2 => (0..3_u8, prop::option::of(0..3_u8))
            .prop_map(|(child, value)| Edit::Foreign { child, value }),
        2 => (0..3_u8).prop_map(Edit::Disowned),
        2 => (0..3_u8).prop_map(Edit::Deleted),
        1 => any::<bool>().prop_map(Edit::Available),
        1 => any::<bool>().prop_map(Edit::Served),
        1 => (1..3_u8).prop_map(Edit::Refuse),
        1 => Just(Edit::Tick),
        2 => Just(Edit::Nothing),
    ]
}

/// The guest's answer; `used_now` is true if it asked for the time.
struct GuestReply {
    outcome: Option<Outcome>,
    used_now: bool,
}

fn get(name: u8) -> ReadKey {
    ReadKey::Get(ObjectRef {
        kind: Gvk::new("", "v1", "ConfigMap"),
        namespace: None,
        name: format!("related-{name}").into(),
    })
}

fn zone(unix_ms: u64) -> ReadKey {
    let zone = "Europe/Berlin".into();
    ReadKey::ZoneOffset(ZoneTime { zone, unix_ms })
}

fn list() -> ReadKey {
    ReadKey::List(ListSelector {
        kind: Gvk::new("", "v1", "ConfigMap"),
        namespace: None,
        label_selector: None,
    })
}

/// A guest whose reads depend on each other, and whose answer depends on all inputs.
fn guest(
    parent: &str,
    children: &[Object],
    clock: u64,
    mut ask: impl FnMut(&ReadKey) -> Answer,
) -> GuestReply {
    let parent: Value = serde_json::from_str(parent).unwrap();
    let number = |field: &str| u8::try_from(parent["spec"][field].as_u64().unwrap_or(0)).unwrap();
    let text = |answer: Answer| match answer {
        Answer::Object(Some(text)) => text.to_string(),
        Answer::List(texts) => texts.join(","),
        Answer::Object(None) => "absent".to_owned(),
        Answer::Offset(offset) => format!("{offset:?}"),
        Answer::Failed(failure) => failure.to_string(),
    };
    let mut state = text(ask(&get(number("follows"))));
    // The first answer decides on the next read.
    match state.as_str() {
        "value-1" => state = text(ask(&get(1))),
        "value-2" => state = text(ask(&list())),
        _ => {}
    }
    let used_now = number("mode") == 1;
    if used_now {
        state = format!("{state} at {clock}");
    }
    let visible = children.len().min(2);
    let stated = (0..number("children")).map(|index| {
        let mut stated: Child = match index {
            0 => child("example.dev/v1", "Widget", "c0"),
            index => config_map(&format!("c{index}")),
        };
        stated.object.insert(
            "data".to_owned(),
            json!({"found": state, "seen": visible.to_string()}),
        );
        if number("mode") == 2 {
            stated.removal = RemovalPolicy::Retain;
        }
        if index == 2 {
            stated.apply = ApplyPolicy::Once;
        }
        stated
    });
    let requeue = (number("mode") == 3).then_some(60_000);
    let report = Report {
        requeue_after_ms: requeue,
        ..Report::default()
    };
    let outcome = (number("mode") != 4 || state != "absent").then(|| {
        Outcome::Desired(Desired {
            children: stated.collect(),
            report,
            prediction: None,
        })
    });
    GuestReply { outcome, used_now }
}

impl Model {
    fn new(memory: Option<Memory>) -> Self {
        Self {
            scene: scene(),
            server: Server::default(),
            related: BTreeMap::new(),
            clock: 0,
            refusals: 0,
            memory,
            calls: 0,
            writes: Vec::new(),
        }
    }

    fn edit(&mut self, edit: &Edit) {
        let ids: Vec<ObjectId> = self.server.ids().into_iter().collect();
        let id = |place: u8| ids.get(usize::from(place) % ids.len().max(1));
        match edit {
            Edit::Spec {
                follows,
                children,
                mode,
            } => {
                self.scene.parent.0["spec"] =
                    json!({"follows": follows, "children": children, "mode": mode});
            }
            Edit::Related(name, Some(value)) => {
                self.related.insert(*name, format!("value-{value}"));
            }
            Edit::Related(name, None) => drop(self.related.remove(name)),
            Edit::Foreign { child, value } => {
                if let Some(id) = id(*child) {
                    let value = value.map(|value| json!(format!("theirs-{value}")));
                    self.server.edit(id, &["data", "found"], value);
                }
            }
            Edit::Disowned(child) => {
                if let Some(id) = id(*child) {
                    self.server.disown(id);
                }
            }
            Edit::Deleted(child) => {
                if let Some(id) = id(*child) {
                    self.server.remove(id);
                }
            }
            Edit::Available(available) => {
                let widget = ids.iter().find(|id| &*id.kind.kind == "Widget");
                let status = if *available { "True" } else { "False" };
                let status = json!({"conditions": [{"type": "Available", "status": status}]});
                if let Some(id) = widget {
                    self.server.set_status(id, status);
                }
            }
            Edit::Served(served) => {
                self.scene.cluster.without = if *served { vec![] } else { vec!["ConfigMap"] };
            }
            Edit::Refuse(count) => self.refusals = *count,
            Edit::Tick => self.clock += 1,
            Edit::Nothing => {}
        }
    }

    /// Answers a read from the related objects, as the cache does.
    fn answer(related: &BTreeMap<u8, String>, key: &ReadKey) -> Answer {
        match key {
            ReadKey::Get(reference) => {
                let name: u8 = reference
                    .name
                    .strip_prefix("related-")
                    .unwrap()
                    .parse()
                    .unwrap();
                Answer::Object(related.get(&name).map(|value| value.as_str().into()))
            }
            ReadKey::ZoneOffset(time) => Answer::Offset(time.offset()),
            ReadKey::List(_) => Answer::List(
                related
                    .values()
                    .map(|value| value.as_str().into())
                    .collect(),
            ),
        }
    }

    /// Runs one pass like the host, with the memory if there is one.
    fn pass(&mut self) -> Next {
        let Self { scene, related, .. } = self;
        let parent = scene.parent.object();
        let identity = parent.id().identity();
        let mut children: Vec<Object> = self.server.objects().iter().map(observed).collect();
        children.retain(|child| {
            let retained = child.retained_for.as_deref() == Some(&identity);
            child.controller.as_ref() == Some(&parent.uid) || retained
        });
        let mut inputs = Inputs::for_revision("0.1.0", b"revision", &scene.key);
        inputs.children(&children);
        inputs.parent(Phase::Reconcile, &parent);
        for declared in &scene.manifest.children {
            let resource = scene.cluster.resource(&declared.kind);
            inputs.served(&declared.kind, resource.as_ref());
        }
        if let Some(memory) = &self.memory {
            let recalled = memory.recall(&parent.id(), &inputs, |key| Self::answer(related, key));
            if let Some(next) = recalled {
                return next;
            }
        }
        self.calls += 1;
        let mut reads = Vec::new();
        let reply = guest(&parent.json, &children, self.clock, |key| {
            let answer = Self::answer(related, key);
            reads.push((key.clone(), answer.clone()));
            answer
        });
        let Some(outcome) = reply.outcome else {
            self.report("Retrying", "unchanged");
            return Next::Backoff;
        };
        let (next, wrote) = self.converge(&outcome);
        if let Some(memory) = &self.memory
            && !wrote
            && !reply.used_now
            && matches!(next, Next::Settled | Next::RequeueAfter(_))
        {
            memory.remember(&parent.id(), inputs, &reads, next.clone());
        }
        next
    }

    fn converge(&mut self, outcome: &Outcome) -> (Next, bool) {
        let plan = self.scene.plan(&self.server.objects(), outcome);
        let mut effects = Effects::default();
        for operation in &plan.operations {
            let id = operation.child().unwrap().clone();
            self.writes.push(operation.to_string());
            let refused = self.refusals > 0;
            self.refusals = self.refusals.saturating_sub(1);
            let failure = || WriteFailure {
                reason: "ApplyFailed",
                message: format!("failed to {operation}"),
                retry: Retry::Backoff,
            };
            let done = if refused {
                None
            } else {
                self.server.write(operation).ok()
            };
            let shown = || self.server.get(&id).map(|object| object.to_string().into());
            let effect = done.map(|()| shown()).ok_or_else(failure);
            let has_failed = effect.is_err();
            effects.children.insert(id, effect);
            if has_failed {
                break;
            }
        }
        let conclusion = plan::conclude(&plan, &effects);
        let ready: &str = conclusion.ready.status.into();
        let reported = self.report(&conclusion.synced.reason, ready);
        let Outcome::Desired(desired) = outcome else {
            unreachable!()
        };
        let requeue = desired.report.requeue_after_ms.map(Duration::from_millis);
        let next = match (conclusion.retry, requeue) {
            (Some(_), _) => Next::Backoff,
            (None, Some(after)) => Next::RequeueAfter(after),
            (None, None) => Next::Settled,
        };
        (next, reported || !plan.operations.is_empty())
    }

    /// Writes the status if it has changed.
    fn report(&mut self, synced: &str, ready: &str) -> bool {
        let status = json!({"synced": synced, "ready": ready});
        let parent = &mut self.scene.parent.0;
        let another = parent["status"] != status;
        if another {
            self.writes.push(format!("status {synced} {ready}"));
            parent["status"] = status;
        }
        another
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// For every history: the same writes in the same order, the same state, and passes at the same times.
    #[test]
    fn a_host_with_memory_writes_the_same_as_one_without(
        edits in collection::vec((edit(), 1..4_u8), 1..20)
    ) {
        let mut plain = Model::new(None);
        let mut mindful = Model::new(Some(Memory::default()));
        for (edit, passes) in edits {
            plain.edit(&edit);
            mindful.edit(&edit);
            for _ in 0..passes {
                prop_assert_eq!(plain.pass(), mindful.pass(), "after {:?}", edit);
                prop_assert_eq!(&plain.writes, &mindful.writes, "after {:?}", edit);
            }
        }
        prop_assert_eq!(plain.server.objects(), mindful.server.objects());
        prop_assert_eq!(plain.scene.parent.0, mindful.scene.parent.0);
        prop_assert!(mindful.calls <= plain.calls);
    }
}

#[test]
fn an_unchanged_parent_has_one_call_and_keeps_its_requeue() {
    let mut model = Model::new(Some(Memory::default()));
    model.edit(&Edit::Related(0, Some(0)));
    model.edit(&Edit::Spec {
        follows: 0,
        children: 2,
        mode: 3,
    });
    for _ in 0..4 {
        model.pass();
    }
    let calls = model.calls;
    for _ in 0..10 {
        assert_eq!(model.pass(), Next::RequeueAfter(Duration::from_mins(1)));
    }
    assert_eq!(model.calls, calls);
    // Only a change of an object that was read has the guest called.
    model.edit(&Edit::Related(2, Some(0)));
    model.pass();
    assert_eq!(model.calls, calls);
    model.edit(&Edit::Related(0, Some(4)));
    model.pass();
    assert_eq!(model.calls, calls + 1);
}

#[test]
fn a_guest_that_asked_for_the_time_is_always_called() {
    let mut model = Model::new(Some(Memory::default()));
    model.edit(&Edit::Spec {
        follows: 0,
        children: 1,
        mode: 1,
    });
    for _ in 0..8 {
        model.pass();
    }
    assert_eq!(model.calls, 8);
}

#[test]
fn inputs_that_differ_in_anything_have_different_keys() {
    let key = HashKey::new(*b"key");
    let parent = scene().parent.object();
    let base = || Inputs::for_revision("0.1.0", b"revision", &key);
    let with = |phase, parent: &Object, children: &[Object]| {
        let mut inputs = base();
        inputs.children(children);
        inputs.parent(phase, parent);
        inputs.key()
    };
    let reads = |reads: &[(ReadKey, Answer)]| {
        let mut inputs = base();
        for (key, answer) in reads {
            inputs.read(key, answer);
        }
        inputs.key()
    };
    let entry = ManagedEntry {
        manager: "innkeeper:web".into(),
        subresource: None,
        applied: true,
        fields: "{}".into(),
    };
    let owned = Object {
        managed: vec![entry],
        ..parent.clone()
    };
    let absent = Answer::Object(None);
    let object = |text: &str| Answer::Object(Some(text.into()));
    let keys = [
        with(Phase::Reconcile, &parent, &[]),
        with(Phase::Finalize, &parent, &[]),
        with(Phase::Reconcile, &owned, &[]),
        with(Phase::Reconcile, &parent, std::slice::from_ref(&parent)),
        with(Phase::Reconcile, &parent, std::slice::from_ref(&owned)),
        with(Phase::Reconcile, &parent, &[parent.clone(), parent.clone()]),
        Inputs::for_revision("0.1.0", b"other", &key).key(),
        Inputs::for_revision("0.2.0", b"revision", &key).key(),
        Inputs::for_revision("0.1.0", b"revision", &HashKey::new(*b"other")).key(),
        reads(&[(get(1), absent.clone())]),
        reads(&[(get(1), object(""))]),
        reads(&[(get(2), absent.clone())]),
        reads(&[(get(1), absent.clone()), (get(2), absent)]),
        reads(&[(list(), Answer::List(Vec::new()))]),
        reads(&[(zone(1), Answer::Offset(None))]),
        reads(&[(zone(1), Answer::Offset(Some(0)))]),
        reads(&[(zone(2), Answer::Offset(Some(0)))]),
        reads(&[(list(), Answer::List(vec!["ab".into(), "c".into()]))]),
        reads(&[(list(), Answer::List(vec!["a".into(), "bc".into()]))]),
    ];
    let different: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(different.len(), keys.len());
}

#[test]
fn a_pass_with_too_many_reads_is_not_remembered() {
    let memory = Memory::default();
    let parent = scene().parent.object().id();
    let inputs = || Inputs::for_revision("0.1.0", b"revision", &HashKey::new(*b"key"));
    let many: Vec<_> = (0..=READS_MAX)
        .map(|index| (get(u8::try_from(index).unwrap()), Answer::Object(None)))
        .collect();
    memory.remember(&parent, inputs(), &many[1..], Next::Settled);
    let recalled = || memory.recall(&parent, &inputs(), |_| Answer::Object(None));
    assert_eq!(recalled(), Some(Next::Settled));
    memory.remember(&parent, inputs(), &many, Next::Settled);
    assert_eq!(recalled(), None);
}
