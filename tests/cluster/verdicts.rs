//! `innkeeper render` accepts and rejects the same parents as the API server, and reports the same
//! failing paths.
//!
//! The tests render generated parents, and create them with `dryRun=All`. Both sides drop unknown
//! fields with a warning, which `kubectl` would turn into an error. Messages differ by design, so the
//! tests do not compare them.

mod generate;
mod schema;
mod values;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
    sync::Mutex,
    thread,
};

use innkeeper_tests::{
    Trial, manifest,
    process::{is_full, seed},
    user::Kind,
};
use serde_json::Value;

use crate::{examples::files, suite::Site};
use generate::Generator;
use schema::Rule;

/// The number of parents per guest.
const PARENTS: usize = 300;

/// The number of parents per guest in `tests/full`.
const PARENTS_FULL: usize = 5000;

/// The number of threads that render.
const THREADS: usize = 2;

/// The output of `innkeeper render` for a parent.
#[derive(Debug)]
struct Rendered {
    code: Option<i32>,
    /// The text after `error: `; empty without an error.
    #[expect(dead_code, reason = "a failed assertion prints it")]
    error: String,
    /// The failing paths.
    paths: BTreeSet<String>,
    /// The warnings about unknown fields: `unknown field "spec.x"`.
    unknown_fields: BTreeSet<String>,
    /// The fault's reason; empty without a fault.
    fault: String,
}

impl Rendered {
    /// Runs `innkeeper render`.
    fn new(mut command: Command) -> Self {
        let output = command.output().expect("render can be started");
        let errors = String::from_utf8(output.stderr).expect("render writes UTF-8");
        let starting = |start: &'static str| {
            errors
                .lines()
                .filter_map(move |line| line.strip_prefix(start))
        };
        let unknown_fields = starting("warning: ").filter_map(|line| {
            let (_, field) = line
                .strip_suffix(" is dropped")?
                .split_once("unknown field ")?;
            Some(format!("unknown field {field}"))
        });
        let fault = starting("fault: ").next().unwrap_or_default();
        let error = starting("error: ").next().unwrap_or_default();
        Self {
            code: output.status.code(),
            paths: rendered_paths(error),
            error: error.to_owned(),
            unknown_fields: unknown_fields.collect(),
            fault: fault.split(':').next().unwrap_or_default().to_owned(),
        }
    }

    /// Compares the output with the API server's answer.
    fn difference(&self, trial: &Trial) -> Option<String> {
        let problem = match (trial.code, self.code) {
            // A guest may refuse a parent that the schema accepts, but must answer correctly.
            (201, Some(0)) => None,
            (201, Some(3)) if ["invalid", "retry"].contains(&&*self.fault) => None,
            (422, Some(3)) if self.fault.is_empty() => {
                (self.paths != server_paths(trial)).then_some("paths differ")
            }
            // The server's decoder stops at the first field with a wrong type and reports no path.
            (400, Some(2)) => return None,
            (400, Some(3)) if self.fault.is_empty() => return None,
            // `render` refuses an object without a name before it validates anything else.
            (422, Some(2)) if is_nameless(trial) => return None,
            (201 | 400 | 422, _) => Some("verdicts differ"),
            _ => Some("the answer is no verdict"),
        };
        let problem = problem.or_else(|| {
            // `render` does not check the status, because a create drops it.
            let is_rendered = |field: &&String| !field.contains("\"status.");
            let are_same = trial
                .unknown_fields
                .iter()
                .filter(is_rendered)
                .eq(&self.unknown_fields);
            (trial.is_accepted() && !are_same).then_some("warnings differ")
        })?;
        Some(format!("{problem}\nrender {self:#?}\nserver {trial:#?}"))
    }
}

/// Returns true if the object was rejected for a missing name.
fn is_nameless(trial: &Trial) -> bool {
    let missing = "Required value: name or generateName is required";
    trial
        .causes
        .iter()
        .any(|(field, message)| field == "metadata.name" && message == missing)
}

/// Parses the failing paths in an error like
/// `Kind.group "name" is invalid: PATH: MESSAGE; PATH: MESSAGE`.
fn rendered_paths(error: &str) -> BTreeSet<String> {
    // A message may contain a semicolon and a colon too, but only a path has no spaces.
    let is_path = |path: &str| path == WHOLE || !path.contains(' ');
    let (_, causes) = error.split_once(" is invalid: ").unwrap_or_default();
    causes
        .split("; ")
        .filter_map(|cause| cause.split_once(": "))
        .filter(|(path, _)| is_path(path))
        .map(|(path, _)| comparable(path))
        .collect()
}

/// The path for the whole object; the API server reports `<nil>`.
const WHOLE: &str = "the object";

/// Returns the failing paths in the API server's answer.
fn server_paths(trial: &Trial) -> BTreeSet<String> {
    let path = |(field, message): &(String, String)| {
        // Both the schema and the scale subresource report a wrong type for the replicas.
        if message.contains(" accessor error: ") {
            return None;
        }
        match message.rsplit_once(" in ") {
            // For a number out of range, only the message has the path.
            Some((text, path)) if text.contains("Checked value must be of type") => {
                Some(comparable(path))
            }
            _ if field == "<nil>" => Some(WHOLE.to_owned()),
            _ => Some(comparable(field)),
        }
    };
    trial.causes.iter().filter_map(path).collect()
}

/// Normalizes a path: the API server writes map keys with a dot or in brackets, and does not report
/// single metadata entries.
fn comparable(path: &str) -> String {
    let path = path.replace('[', ".").replace(']', "");
    let path = path.trim_start_matches('.');
    for field in ["labels", "annotations", "finalizers"] {
        let field = format!("metadata.{field}");
        if path.starts_with(&format!("{field}.")) {
            return field;
        }
    }
    let Some(rest) = path.strip_prefix("metadata.ownerReferences.") else {
        return path.to_owned();
    };
    let field = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    match field {
        "" => "metadata.ownerReferences".to_owned(),
        field => format!("metadata.ownerReferences.{field}"),
    }
}

/// Loads a guest's examples of a kind.
fn examples(guest: &str, kind: &str) -> Vec<Value> {
    files(guest)
        .into_iter()
        .flat_map(|file| manifest::load(&file).expect("an example can be read"))
        .filter(|object| object["kind"] == kind)
        .collect()
}

/// The comparison for one parent kind.
struct Trials {
    site: Site,
    guest: &'static str,
    api_version: String,
    kind: String,
    schema: Value,
    examples: Vec<Value>,
    directory: tempfile::TempDir,
}

impl Trials {
    fn new(guest: &'static str, crd: &str) -> Self {
        let site = Site::new(&format!("verdicts-{guest}"));
        let kind = Kind::cluster("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let crd = site
            .plane
            .user()
            .get(kind, crd)
            .expect("CRDs can be read")
            .expect("the host installs the CRD");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = &crd["spec"]["versions"][0];
        let kind = text(&crd["spec"]["names"]["kind"]);
        Self {
            guest,
            api_version: format!("{}/{}", text(&crd["spec"]["group"]), text(&version["name"])),
            schema: version["schema"]["openAPIV3Schema"].clone(),
            examples: examples(guest, &kind),
            kind,
            site,
            directory: tempfile::tempdir().expect("a directory can be made"),
        }
    }

    /// Tries parents, and returns the differences and all answers from the API server.
    fn run(&self, parents: &[Value]) -> (Vec<String>, Vec<Trial>) {
        let outcome = Mutex::new((Vec::new(), Vec::new()));
        thread::scope(|scope| {
            for part in parents.chunks(parents.len().div_ceil(THREADS)) {
                let outcome = &outcome;
                scope.spawn(move || {
                    for parent in part {
                        let (difference, trial) = self.compare(parent);
                        let mut outcome = outcome.lock().expect("no thread panics");
                        outcome.0.extend(difference);
                        outcome.1.push(trial);
                    }
                });
            }
        });
        outcome.into_inner().expect("no thread panics")
    }

    fn compare(&self, parent: &Value) -> (Option<String>, Trial) {
        let file = tempfile::Builder::new()
            .suffix(".json")
            .tempfile_in(self.directory.path())
            .expect("a file can be made");
        // A create drops the status. With `render`, the plugin could copy an invalid status into the
        // answer, which fails.
        let mut stored = parent.clone();
        if let Some(fields) = stored.as_object_mut() {
            fields.remove("status");
        }
        fs::write(file.path(), stored.to_string()).expect("a file can be written");
        let mut command = self.site.render(self.guest);
        command.arg("--parent").arg(file.path());
        let rendered = Rendered::new(command);
        let kind = Kind::new(&self.api_version, &self.kind, &self.site.namespace);
        let trial = self
            .site
            .plane
            .user()
            .try_create(kind, parent)
            .expect("the API server answers");
        let difference = rendered
            .difference(&trial)
            .map(|difference| format!("{parent:#}\n{difference}"));
        (difference, trial)
    }
}

/// Compares verdicts for `1/share` of the parents per guest, which must break at least `rules_min` of
/// the CRD's rules.
#[track_caller]
#[expect(clippy::print_stdout, reason = "the number of trials is worth a line")]
fn check_verdicts(guest: &'static str, crd: &str, share: usize, rules_min: usize) {
    let trials = Trials::new(guest, crd);
    let rules = Rule::all(&trials.schema);
    let seed = seed();
    let count = if is_full() { PARENTS_FULL } else { PARENTS } / share;
    let mut generator = Generator::new(&trials.schema, &rules, &trials.examples, seed);
    let namespace = Value::from(trials.site.namespace.as_str());
    let parents: Vec<Value> = (0..count)
        .map(|_| {
            let mut parent = generator.next();
            if let Some(metadata) = parent["metadata"].as_object_mut() {
                metadata.insert("namespace".to_owned(), namespace.clone());
            }
            parent
        })
        .collect();
    let (differences, answers) = trials.run(&parents);

    let mut codes: BTreeMap<u16, usize> = BTreeMap::new();
    for answer in &answers {
        *codes.entry(answer.code).or_default() += 1;
    }
    let causes: BTreeSet<_> = answers.iter().flat_map(|answer| &answer.causes).collect();
    let (broken, whole): (Vec<&Rule<'_>>, Vec<&Rule<'_>>) = rules.iter().partition(|rule| {
        causes
            .iter()
            .any(|(field, message)| rule.is_said(field, message))
    });
    let reached = format!(
        "{}: {count} parents from seed {seed}: answers {codes:?}, {} of {} rules broken, not {:#?}",
        trials.kind,
        broken.len(),
        rules.len(),
        whole
            .iter()
            .map(|rule| format!("{}: {}", rule.place(), rule.text))
            .collect::<Vec<_>>(),
    );
    println!("{reached}");
    assert!(
        differences.is_empty(),
        "{reached}\n{} differ from seed {seed}:\n{}",
        differences.len(),
        differences[..differences.len().min(10)].join("\n\n")
    );
    assert!(
        broken.len() >= rules_min,
        "the generator breaks too few rules: {reached}"
    );
    assert!(
        codes[&201] * 10 > count,
        "too few parents are valid: {reached}"
    );
}

#[test]
fn memcached_has_the_verdicts_of_the_api_server() {
    check_verdicts("memcached", "memcacheds.cache.example.com", 1, 8);
}

#[test]
fn wordpress_has_the_verdicts_of_the_api_server() {
    check_verdicts("wordpress", "wordpresses.example.com", 1, 17);
}

#[test]
fn etcd_has_the_verdicts_of_the_api_server() {
    check_verdicts("etcd", "etcdclusters.etcd.ydzs.io", 1, 8);
}

// Two tests, because a single one would still run after all others have ended.
#[test]
fn backup_has_the_verdicts_of_the_api_server_for_runs() {
    check_verdicts("backup", "backups.gobackup.io", 2, 13);
    check_verdicts("backup", "cronbackups.gobackup.io", 2, 14);
}

#[test]
fn backup_has_the_verdicts_of_the_api_server_for_the_other_kinds() {
    check_verdicts("backup", "restores.gobackup.io", 1, 1);
    check_verdicts("backup", "storages.gobackup.io", 2, 8);
}
