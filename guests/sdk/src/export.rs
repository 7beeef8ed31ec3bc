//! The macro that exports a plugin, and the conversions between this crate's types and the contract's types.

use std::time::Duration;

use serde_json::Value;

use crate::answer::{Answer, Event, EventType, Report};
use crate::bindings::innkeeper::plugin::{cluster, host as wit_host, types as wit};
use crate::child::{ApplyPolicy, Child, Generated, Readiness, RemovalPolicy};
use crate::children::{Children, Observed};
use crate::condition::{Condition, ConditionStatus};
use crate::fault::{Fault, FaultKind};
use crate::host::{Denied, Host, ListSelector, LogLevel, ObjectRef};
use crate::json::canonical;
use crate::manifest::{Access, ChildKind, Manifest, ParentKind, ReadKind, ReadScope, Scope};
use crate::prediction::{PredictedChild, Prediction};
pub use crate::reconciler::{Predicting, describe, run};
use crate::request::{Phase, Request};

/// Exports the reconcilers of this crate as a plugin: one type for each kind of parent.
///
/// Call it once, at the root of the crate. It declares the type `Plugin`, whose functions `describe` and `reconcile`
/// are those that the host calls; tests call them as well.
#[macro_export]
macro_rules! export {
    ($($reconciler:ty),+ $(,)?) => {
        /// The plugin as the host and the tests call it.
        #[derive(Clone, Copy, Debug)]
        pub struct Plugin;

        impl Plugin {
            /// Returns the manifest.
            pub fn describe() -> $crate::manifest::Manifest {
                $crate::export::merge([$($crate::export::describe::<$reconciler>()),+])
            }

            /// Runs one pass for a parent, in either phase.
            ///
            /// # Errors
            ///
            /// Returns the fault of the reconciler.
            pub fn reconcile(
                request: &$crate::request::Request,
                host: &dyn $crate::host::Host,
            ) -> Result<$crate::answer::Answer, $crate::fault::Fault> {
                Self::run(request, host, false).map(|(answer, _)| answer)
            }

            fn run(
                request: &$crate::request::Request,
                host: &dyn $crate::host::Host,
                predicts: bool,
            ) -> Result<$crate::export::Predicting, $crate::fault::Fault> {
                $(
                    if let Some(answer) = $crate::export::run::<$reconciler>(request, host, predicts) {
                        return answer;
                    }
                )+
                Err($crate::export::no_reconciler(request))
            }
        }

        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, reason = "exports of a component are made by wit-bindgen")]
        const _: () = {
            struct Export;

            impl $crate::bindings::exports::innkeeper::plugin::reconciler::Guest for Export {
                fn describe() -> $crate::bindings::innkeeper::plugin::types::Manifest {
                    $crate::export::export_manifest(Plugin::describe)
                }

                fn reconcile(
                    request: $crate::bindings::innkeeper::plugin::types::Request,
                ) -> Result<
                    $crate::bindings::innkeeper::plugin::types::Outcome,
                    $crate::bindings::innkeeper::plugin::types::Fault,
                > {
                    $crate::export::export_answer(request, Plugin::describe, Plugin::run)
                }
            }

            $crate::bindings::__export_plugin!(Export with_types_in $crate::bindings);
        };
    };
}

/// Returns one manifest for a plugin's reconcilers: the first one's identity, and each kind once.
pub fn merge(manifests: impl IntoIterator<Item = Manifest>) -> Manifest {
    fn extend<T: PartialEq>(list: &mut Vec<T>, more: Vec<T>) {
        for item in more {
            if !list.contains(&item) {
                list.push(item);
            }
        }
    }
    let mut manifests = manifests.into_iter();
    let mut merged = manifests.next().expect("should be at least one reconciler");
    for manifest in manifests {
        extend(&mut merged.parents, manifest.parents);
        extend(&mut merged.crds, manifest.crds);
        extend(&mut merged.children, manifest.children);
        extend(&mut merged.reads, manifest.reads);
        merged.finalize |= manifest.finalize;
        merged.reads_own_status |= manifest.reads_own_status;
        merged.config_schema = merged.config_schema.or(manifest.config_schema);
    }
    merged
}

/// The fault for a parent whose kind is in the manifest but in no reconciler.
pub fn no_reconciler(request: &Request) -> Fault {
    let kind = request.parent_kind();
    Fault::fatal(format!(
        "no reconciler for parents of kind {kind}: add it to export!"
    ))
}

/// Answers the host's call to `describe`.
pub fn export_manifest(describe: Describe) -> wit::Manifest {
    install_panic_hook();
    manifest(describe())
}

/// Answers the host's call to `reconcile`.
pub fn export_answer(
    input: wit::Request,
    describe: Describe,
    reconcile: Reconcile,
) -> Result<wit::Outcome, wit::Fault> {
    install_panic_hook();
    let predicts = input.predict;
    let (answered, prediction) =
        reconcile(&request(input), &WitHost(describe), predicts).map_err(fault)?;
    Ok(answer(answered, prediction))
}

/// Logs the message of a panic, because on this target a panic is a trap without a message.
fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        wit_host::log(wit::LogLevel::Error, &info.to_string());
    }));
}

type Describe = fn() -> Manifest;
type Reconcile = fn(&Request, &dyn Host, bool) -> Result<Predicting, Fault>;

/// The host behind the component's imports.
struct WitHost(Describe);

impl Host for WitHost {
    fn log(&self, level: LogLevel, message: &str) {
        let level = match level {
            LogLevel::Error => wit::LogLevel::Error,
            LogLevel::Warn => wit::LogLevel::Warn,
            LogLevel::Info => wit::LogLevel::Info,
            LogLevel::Debug => wit::LogLevel::Debug,
        };
        wit_host::log(level, message);
    }

    fn now_ms(&self) -> u64 {
        wit_host::now()
    }

    fn zone_offset(&self, zone: &str, unix_ms: u64) -> Option<i32> {
        wit_host::zone_offset(zone, unix_ms)
    }

    fn random(&self, length: u32) -> Vec<u8> {
        wit_host::random(length)
    }

    fn get_json(&self, object: &ObjectRef) -> Result<Option<String>, Denied> {
        cluster::get(&wit::ObjectRef {
            api_version: object.api_version.clone(),
            kind: object.kind.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
        })
        .map_err(|error| self.denied(error, &object.api_version, &object.kind))
    }

    fn list_json(&self, selector: &ListSelector) -> Result<Vec<String>, Denied> {
        cluster::list(&wit::ListSelector {
            api_version: selector.api_version.clone(),
            kind: selector.kind.clone(),
            namespace: selector.namespace.clone(),
            label_selector: selector.label_selector.clone(),
        })
        .map_err(|error| self.denied(error, &selector.api_version, &selector.kind))
    }
}

impl WitHost {
    fn denied(&self, error: wit::ReadError, api_version: &str, kind: &str) -> Denied {
        match error {
            // More grants would not help.
            wit::ReadError::NotGranted if !(self.0)().declares_read(api_version, kind) => {
                Denied::NotDeclared
            }
            wit::ReadError::NotGranted => Denied::NotGranted,
            wit::ReadError::NotServed => Denied::NotServed,
        }
    }
}

fn request(input: wit::Request) -> Request {
    let observe =
        |child: wit::ObservedChild| Observed::new(child.key, child.retained, child.object);
    let children = Children::new(input.children.into_iter().map(observe).collect());
    let phase = match input.phase {
        wit::Phase::Reconcile => Phase::Reconcile,
        wit::Phase::Finalize => Phase::Finalize,
    };
    let mut request = Request::new(input.parent, children, input.config, phase);
    request.namespace_terminating = input.namespace_terminating;
    request
}

fn answer(answer: Answer, predicted: Option<Prediction>) -> wit::Outcome {
    match answer {
        Answer::Desired(desired) => wit::Outcome::Desired(wit::Desired {
            children: desired.children.into_iter().map(child).collect(),
            report: report(desired.report),
            prediction: predicted.map(prediction),
        }),
        Answer::Keep(last) => wit::Outcome::Keep(report(last)),
        Answer::Finalized(last) => wit::Outcome::Finalized(report(last)),
    }
}

fn prediction(prediction: Prediction) -> wit::Prediction {
    let part = |(pointer, value): (String, Option<Value>)| wit::PredictedPart {
        pointer,
        value: value.map(canonical),
    };
    let child = |child: PredictedChild| wit::PredictedChild {
        key: child.key,
        parts: child.parts.into_iter().map(part).collect(),
    };
    wit::Prediction {
        report: report(prediction.report),
        children: prediction.children.into_iter().map(child).collect(),
    }
}

fn fault(fault: Fault) -> wit::Fault {
    wit::Fault {
        kind: match fault.kind {
            FaultKind::Retry => wit::FaultKind::Retry,
            FaultKind::Invalid => wit::FaultKind::Invalid,
            FaultKind::Fatal => wit::FaultKind::Fatal,
        },
        message: fault.message,
        report: fault.report.map(|boxed| report(*boxed)),
    }
}

fn report(report: Report) -> wit::Report {
    wit::Report {
        status: report.status.map(canonical),
        conditions: report.conditions.into_iter().map(condition).collect(),
        events: report.events.into_iter().map(event).collect(),
        requeue_after_ms: report.requeue.map(milliseconds),
    }
}

/// Whole milliseconds, rounded up: a pass is never too early.
fn milliseconds(after: Duration) -> u64 {
    u64::try_from(after.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn condition(condition: Condition) -> wit::Condition {
    wit::Condition {
        type_: condition.type_,
        status: match condition.status {
            ConditionStatus::True => wit::ConditionStatus::True,
            ConditionStatus::False => wit::ConditionStatus::False,
            ConditionStatus::Unknown => wit::ConditionStatus::Unknown,
        },
        reason: condition.reason,
        message: condition.message,
    }
}

fn event(event: Event) -> wit::Event {
    wit::Event {
        type_: match event.type_ {
            EventType::Normal => wit::EventType::Normal,
            EventType::Warning => wit::EventType::Warning,
        },
        reason: event.reason,
        message: event.message,
    }
}

fn child(child: Child) -> wit::Child {
    let generated = |value: Generated| wit::Generated {
        key: value.key,
        length: value.length,
        alphabet: value.alphabet,
        token: value.token,
    };
    wit::Child {
        object: child.object.into_text(),
        key: child.key,
        generate: child.generate.into_iter().map(generated).collect(),
        apply: match child.apply {
            ApplyPolicy::Always => wit::ApplyPolicy::Always,
            ApplyPolicy::Once => wit::ApplyPolicy::Once,
            ApplyPolicy::Hold => wit::ApplyPolicy::Hold,
        },
        removal: match child.removal {
            RemovalPolicy::Delete => wit::RemovalPolicy::Delete,
            RemovalPolicy::Retain => wit::RemovalPolicy::Retain,
        },
        readiness: match child.readiness {
            Readiness::Derive => wit::Readiness::Derive,
            Readiness::Ready => wit::Readiness::Ready,
            Readiness::NotReady => wit::Readiness::NotReady,
        },
        after: child.after,
    }
}

fn manifest(manifest: Manifest) -> wit::Manifest {
    wit::Manifest {
        name: manifest.name,
        version: manifest.version,
        parents: manifest.parents.into_iter().map(parent_kind).collect(),
        crds: manifest.crds.into_iter().map(canonical).collect(),
        children: manifest.children.into_iter().map(child_kind).collect(),
        reads: manifest.reads.into_iter().map(read_kind).collect(),
        finalize: manifest.finalize,
        reads_own_status: manifest.reads_own_status,
        config_schema: manifest.config_schema.map(canonical),
    }
}

fn parent_kind(parent: ParentKind) -> wit::ParentKind {
    wit::ParentKind {
        group: parent.group,
        version: parent.version,
        kind: parent.kind,
        plural: parent.plural,
        scope: match parent.scope {
            Scope::Namespaced => wit::Scope::Namespaced,
            Scope::Cluster => wit::Scope::Cluster,
        },
    }
}

fn child_kind(child: ChildKind) -> wit::ChildKind {
    wit::ChildKind {
        api_version: child.api_version,
        kind: child.kind,
        required: child.required,
        ready_condition: child.ready_condition,
        never_deleted: child.never_deleted,
    }
}

fn read_kind(read: ReadKind) -> wit::ReadKind {
    wit::ReadKind {
        api_version: read.api_version,
        kind: read.kind,
        access: match read.access {
            Access::Full => wit::Access::Full,
            Access::Metadata => wit::Access::Metadata,
            Access::Hash => wit::Access::Hash,
        },
        scope: match read.scope {
            ReadScope::ParentNamespace => wit::ReadScope::ParentNamespace,
            ReadScope::Cluster => wit::ReadScope::Cluster,
        },
        label_selector: read.label_selector,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::{answer, fault, milliseconds, wit};
    use crate::answer::{Desired, Event, Report};
    use crate::child::Child;
    use crate::condition::Condition;
    use crate::fault::Fault;

    #[test]
    fn carries_an_answer_across() {
        let object = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}});
        let child = Child::untyped("a", &object)
            .once()
            .retain()
            .not_ready()
            .after(["b"])
            .generate("password", 8, "ab")
            .token("2");
        let report = Report::new()
            .status(&json!({"b": null, "a": 1, "conditions": []}))
            .condition(Condition::new("Ready", false, "No", "no"))
            .condition(Condition::new("Ready", true, "Yes", "yes"))
            .event(Event::warning("Odd", "odd"))
            .requeue(Duration::from_micros(1500));
        let wit::Outcome::Desired(desired) = answer(
            Desired {
                children: vec![child],
                report,
            }
            .into(),
            None,
        ) else {
            panic!("should be a desired set");
        };
        assert_eq!(
            desired.children,
            [wit::Child {
                key: "a".to_owned(),
                object: r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#.to_owned(),
                generate: vec![wit::Generated {
                    key: "password".to_owned(),
                    length: 8,
                    alphabet: "ab".to_owned(),
                    token: Some("2".to_owned()),
                }],
                apply: wit::ApplyPolicy::Once,
                removal: wit::RemovalPolicy::Retain,
                readiness: wit::Readiness::NotReady,
                after: vec!["b".to_owned()],
            }],
        );
        let report = desired.report;
        assert_eq!(report.status.as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(report.conditions.len(), 1, "a type is stated once");
        assert_eq!(report.conditions[0].status, wit::ConditionStatus::True);
        assert_eq!(report.events[0].type_, wit::EventType::Warning);
        assert_eq!(report.requeue_after_ms, Some(2));
    }

    #[test]
    fn carries_a_fault_across() {
        let exported = fault(Fault::invalid("spec.size: wrong").with_report(Report::new()));
        assert_eq!(exported.kind, wit::FaultKind::Invalid);
        assert_eq!(exported.message, "spec.size: wrong");
        assert_eq!(exported.report.unwrap().status, None);
        assert_eq!(fault(Fault::retry("later")).report, None);
    }

    #[test]
    fn never_asks_for_a_pass_too_early() {
        assert_eq!(milliseconds(Duration::ZERO), 0);
        assert_eq!(milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(milliseconds(Duration::from_secs(5)), 5000);
        assert_eq!(milliseconds(Duration::MAX), 18_446_744_073_709_551_615);
    }
}
