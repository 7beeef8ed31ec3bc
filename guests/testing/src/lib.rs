//! Parents and verdicts for testing the shipped plugins.
//!
//! A separate crate, because neither plugins nor authors need proptest.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use innkeeper_crd::{Admitted, RejectionCause, Schema, config};
use innkeeper_model::yaml;
use innkeeper_sdk::{
    prelude::*,
    testing::{Calls, FakeHost, ReverseOrder, TestRequest, calls_from_empty, reverse_order},
};
use proptest::{prelude::*, sample::select, string::string_regex};
use serde_json::{Map, Value, json};

/// A plugin under test: the manifest and the CRD schemas, which take long to generate, and the reconciler.
#[derive(Debug)]
pub struct Fixture {
    /// The plugin's manifest.
    pub manifest: Manifest,
    schemas: BTreeMap<String, Schema>,
    reconcile: Reconcile,
}

type Reconcile = fn(&Request, &dyn Host) -> Result<Answer, Fault>;

impl Fixture {
    /// Takes the functions of the plugin's type `Plugin`.
    ///
    /// # Panics
    ///
    /// Panics if a CRD is invalid.
    pub fn new(describe: fn() -> Manifest, reconcile: Reconcile) -> Self {
        let manifest = describe();
        let schema = |crd: &Value| {
            let kind = crd["spec"]["names"]["kind"].as_str()?.to_owned();
            let version = crd["spec"]["versions"][0]["name"].as_str()?;
            Some((kind, Schema::new(crd.as_object()?, version).ok()?))
        };
        let schemas = manifest
            .crds
            .iter()
            .map(|crd| schema(crd).expect("a CRD is valid"))
            .collect();
        Self {
            manifest,
            schemas,
            reconcile,
        }
    }

    /// The schema of a kind, as the API server applies it.
    pub fn schema(&self, kind: &str) -> &Schema {
        &self.schemas[kind]
    }

    /// The text of a kind's schema.
    ///
    /// # Panics
    ///
    /// Panics if the plugin has no CRD of the kind.
    pub fn root(&self, kind: &str) -> &Value {
        let crd = self
            .manifest
            .crds
            .iter()
            .find(|crd| crd["spec"]["names"]["kind"] == kind);
        &crd.expect("the plugin has the CRD")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    }

    /// A host that grants everything in the manifest.
    pub fn host(&self) -> FakeHost {
        FakeHost::granting(&self.manifest)
    }

    /// A parent's verdict in one line: the API server's or, after it, the plugin's.
    pub fn verdict(&self, parent: &Value, host: &FakeHost) -> String {
        let kind = parent["kind"].as_str().unwrap_or_default();
        match admit(self.schema(kind), parent) {
            Ok(admitted) => {
                let request = TestRequest::new(&admitted.object).build();
                let answer = (self.reconcile)(&request, host);
                verdict(&admitted, answer.map(|_| "accepted".to_owned()))
            }
            Err(rejected) => rejected,
        }
    }

    /// Returns a line for each parent in a directory of examples: the calls until its children exist, and those that
    /// predictions save. All objects of the directory exist.
    ///
    /// # Panics
    ///
    /// Panics if an example is no valid object.
    pub fn example_calls(&self, directory: &str, host: FakeHost) -> String {
        let objects = self.examples(directory);
        let host = host.objects(objects.iter().map(|(_, object)| object));
        let is_parent = |object: &Value| {
            let kinds = self.manifest.parents.iter();
            kinds
                .map(|parent| &*parent.kind)
                .any(|kind| object["kind"] == kind)
        };
        let line = |(file, parent): &(String, Value)| {
            let Calls { made, saved } = calls_from_empty(parent, &host, self.reconcile);
            let kind = parent["kind"].as_str().unwrap_or_default();
            format!("{file} {kind}: {made} made, {saved} saved\n")
        };
        let parents = objects.iter().filter(|(_, object)| is_parent(object));
        parents.map(line).collect::<Vec<_>>().concat()
    }

    /// The objects in a directory of examples as the API server stores them, each with the file's name.
    fn examples(&self, directory: &str) -> Vec<(String, Value)> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let files = fs::read_dir(root.join(directory)).expect("the directory exists");
        let mut files: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
        files.sort();
        let mut objects = Vec::new();
        for file in files {
            let text = fs::read_to_string(&file).expect("an example is a file");
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            for mut object in yaml::read(&text).expect("an example is YAML") {
                object["metadata"]["namespace"] = json!("default");
                let schema = self
                    .schemas
                    .get(object["kind"].as_str().unwrap_or_default());
                let stored = schema.map(|schema| {
                    let admitted = admit(schema, &object).expect("an example is valid");
                    Value::Object(admitted.object)
                });
                objects.push((name.clone().into_owned(), stored.unwrap_or(object)));
            }
        }
        objects
    }

    /// Checks that the answer does not depend on the order of members, children and listed objects.
    ///
    /// # Panics
    ///
    /// Panics if the answers differ.
    pub fn check_order<H: Host>(&self, request: &Request, host: impl Fn() -> H) {
        let forwards = (self.reconcile)(request, &host());
        let backwards = (self.reconcile)(&reverse_order(request), &ReverseOrder(host()));
        assert_eq!(format!("{forwards:?}"), format!("{backwards:?}"));
    }
}

/// The status that the host stores for an answer.
pub fn stored_status(answer: &Answer) -> Value {
    let mut status = answer.report().status.clone().unwrap_or_default();
    status["conditions"] = stored_conditions(answer.report());
    status
}

/// The conditions that the host stores for a report.
pub fn stored_conditions(report: &Report) -> Value {
    let conditions = report.conditions.iter().map(|condition| {
        let mut condition = json!(condition);
        condition["lastTransitionTime"] = json!("2026-08-20T11:00:00Z");
        condition
    });
    conditions.collect()
}

/// Texts that are, or almost are, quantities, percentages, keys and names.
pub const TEXTS: [&str; 12] = [
    "",
    "0",
    "1",
    "1.5",
    "100m",
    "128Mi",
    "1e3",
    "-1Ki",
    "50%",
    "100%",
    "cpu",
    "a/b\u{0}\u{1d11e}",
];

/// Generates values of a schema's type, including ones that the rules reject.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    /// Texts to try besides random ones.
    pub texts: &'static [&'static str],
    /// The probability that an optional field is present.
    pub given: f64,
}

impl Default for Values {
    /// [`TEXTS`], and half of the optional fields.
    fn default() -> Self {
        Self {
            texts: &TEXTS,
            given: 0.5,
        }
    }
}

impl Values {
    /// Generates any value of a schema's type.
    ///
    /// # Panics
    ///
    /// Panics if a pattern in the schema is no regular expression.
    pub fn strategy(self, schema: &Value) -> BoxedStrategy<Value> {
        let text = || prop_oneof![select(self.texts).prop_map(str::to_owned), ".{0,8}"];
        if let Some(values) = schema["enum"].as_array() {
            return select(values.clone()).boxed();
        }
        if schema["x-kubernetes-int-or-string"] == true {
            let number = any::<i32>().prop_map(Value::from);
            return prop_oneof![number, text().prop_map(Value::from)].boxed();
        }
        match schema["type"].as_str().unwrap_or_default() {
            "boolean" => any::<bool>().prop_map(Value::from).boxed(),
            "integer" => {
                let bound = |name: &str, default: i32| {
                    schema[name].as_i64().unwrap_or_else(|| default.into())
                };
                let least = bound("minimum", i32::MIN);
                let most = bound("maximum", i32::MAX);
                prop_oneof![Just(least), Just(most), least..=most]
                    .prop_map(Value::from)
                    .boxed()
            }
            "string" => match schema["pattern"].as_str() {
                // The generator produces whole texts and knows no anchors.
                Some(pattern) => {
                    let inner = pattern.trim_start_matches('^').trim_end_matches('$');
                    let matching =
                        string_regex(inner).expect("the pattern is a regular expression");
                    matching.prop_map(Value::from).boxed()
                }
                None => text().prop_map(Value::from).boxed(),
            },
            "array" => prop::collection::vec(self.strategy(&schema["items"]), 0..4)
                .prop_map(Value::from)
                .boxed(),
            _ if schema.get("additionalProperties").is_some() => {
                let key = select(vec!["cpu", "memory", "a", "", "innkeeper.dev/key", "a/b"]);
                let value = self.strategy(&schema["additionalProperties"]);
                prop::collection::btree_map(key, value, 0..3)
                    .prop_map(|map| json!(map))
                    .boxed()
            }
            _ => self.object(schema),
        }
    }

    fn object(self, schema: &Value) -> BoxedStrategy<Value> {
        let properties = schema["properties"].as_object().into_iter().flatten();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let members = properties.map(|(name, schema)| {
            let is_required = required.contains(&json!(name));
            let name = name.clone();
            let presence = prop::bool::weighted(self.given);
            (self.strategy(schema), presence).prop_map(move |(value, is_given)| {
                (is_required || is_given).then(|| (name.clone(), value))
            })
        });
        let members: Vec<_> = members.collect();
        let object = |members: Vec<_>| Value::Object(members.into_iter().flatten().collect());
        members.prop_map(object).boxed()
    }
}

/// The object as the API server stores it, without the fields that it would reject; `leave_out` removes the fields
/// that a cause concerns.
pub fn admitted(
    schema: &Schema,
    mut object: Map<String, Value>,
    leave_out: impl Fn(&mut Map<String, Value>, &RejectionCause),
) -> Value {
    loop {
        let rejection = match schema.admit(object.clone()) {
            Ok(admitted) => return Value::Object(admitted.object),
            Err(rejection) => rejection,
        };
        for cause in rejection.causes() {
            leave_out(&mut object, cause);
        }
    }
}

/// Removes the spec field that a cause concerns, or these fields if a rule over several fields rejects the object.
pub fn leave_out_of_spec(
    object: &mut Map<String, Value>,
    cause: &RejectionCause,
    of_rules: &[&str],
) {
    let Some(Value::Object(spec)) = object.get_mut("spec") else {
        return;
    };
    let field = cause.path.split(['.', '[']).nth(1).unwrap_or_default();
    if spec.remove(field).is_none() {
        spec.retain(|name, _| !of_rules.contains(&name.as_str()));
    }
}

/// The object as the API server stores it, or the verdict in one line.
///
/// # Errors
///
/// Returns the causes of a rejection.
pub fn admit(schema: &Schema, object: &Value) -> Result<Admitted, String> {
    let object = object.as_object().cloned().unwrap_or_default();
    schema.admit(object).map_err(|rejection| {
        let causes: Vec<String> = rejection
            .causes()
            .iter()
            .map(ToString::to_string)
            // The note about skipped rules says nothing about the object.
            .filter(|cause| !cause.starts_with("the object: not all rules"))
            .collect();
        format!("rejected, {}", causes.join("; "))
    })
}

/// A plugin's one-line verdict on an admitted parent; the caller passes an answer as text.
pub fn verdict(admitted: &Admitted, answer: Result<String, Fault>) -> String {
    let verdict = match answer {
        Ok(answer) => answer,
        Err(fault) => format!("{:?}, {}", fault.kind, fault.message),
    };
    match &admitted.unknown_fields[..] {
        [] => verdict,
        fields => format!("{verdict} without {}", fields.join(", ")),
    }
}

/// Checks that parents have at most 256 KiB; `verdict` judges one with this `spec.env`.
///
/// # Panics
///
/// Panics at a wrong verdict.
pub fn check_parent_size(verdict: impl Fn(Value) -> String) {
    let env = |count: usize, length: usize| {
        let variable =
            |number| json!({ "name": format!("APP_{number}"), "value": "x".repeat(length) });
        verdict((0..count).map(variable).collect())
    };
    let problem = env(64, 4096);
    let start = "Invalid, the object is too large: ";
    assert!(problem.starts_with(start), "{problem}");
    assert!(problem.contains("; spec.env has "), "{problem}");
    assert_eq!(env(60, 4096), "accepted");
    let longer = env(1, 4097);
    assert!(
        longer.starts_with("rejected, spec.env[0].value: "),
        "{longer}"
    );
}

/// The verdicts on the fields that every plugin's configuration has.
fn common_verdicts() -> [(Value, &'static str); 7] {
    [
        (json!({}), ""),
        (json!({"images": {}}), ""),
        (
            json!({"images": {"other": "a"}}),
            "/images: Additional properties are not allowed",
        ),
        (json!({"imags": {}}), "'imags' was unexpected"),
        (json!({"images": null}), "/images: null is not of type"),
        (
            json!({"tenants": {"images": "a"}}),
            "/tenants/images: \"a\" is not of type \"array\"",
        ),
        (
            json!({"tenants": {"images": [1]}}),
            "/tenants/images/0: 1 is not of type \"string\"",
        ),
    ]
}

/// Checks that the host accepts a configuration schema, and how it judges configurations: a part of the problem, or
/// empty for none. The plugin must be able to read each configuration that the host accepts. Also checks the fields
/// that all plugins share.
///
/// # Panics
///
/// Panics at the first difference.
pub fn check_configurations(
    schema: Option<&Value>,
    verdicts: &[(Value, &str)],
    reads: impl Fn(Value) -> bool,
) {
    let schema = schema.unwrap_or(&Value::Null);
    let checked = config::check_size(schema.to_string().len()).and_then(|()| config::check(schema));
    assert_eq!(checked, Ok(()), "the host refuses the schema");
    for (value, expected) in common_verdicts().iter().chain(verdicts) {
        let problems = config::problems(schema, value)
            .unwrap_or_else(|refusal| vec![refusal.to_string()])
            .join("; ");
        assert_eq!(
            problems.is_empty(),
            expected.is_empty(),
            "{value}: {problems}"
        );
        assert!(problems.contains(expected), "{value}: {problems}");
        assert!(
            !problems.is_empty() || reads(value.clone()),
            "{value} is not read"
        );
    }
}
