//! `innkeeper render` accepts and rejects the same parents as the API server, for the same reasons.
//!
//! Generated parents are rendered, and created with `dryRun=All`. Both sides drop unknown fields
//! with a warning; `kubectl`, which validates strictly, would report the same warning as an error.

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

/// The verdict of `innkeeper render` on a parent.
#[derive(Debug)]
struct Rendered {
    code: Option<i32>,
    /// The text after `error: `; empty if there is none.
    error: String,
    /// The unknown fields in its warnings: `unknown field "spec.x"`.
    unknown_fields: BTreeSet<String>,
    /// The reason of a fault, if there is one.
    fault: String,
}

impl Rendered {
    /// Runs `innkeeper render`.
    fn new(mut command: Command) -> Self {
        let output = command.output().expect("render can be started");
        let errors = String::from_utf8(output.stderr).expect("render writes UTF-8");
        let starting = |start: &'static str| {
            let lines = errors.lines();
            lines.filter_map(move |line| line.strip_prefix(start))
        };
        let unknown_fields = starting("warning: ").filter_map(|line| {
            let (_, field) = line
                .strip_suffix(" is dropped")?
                .split_once("unknown field ")?;
            Some(format!("unknown field {field}"))
        });
        let fault = starting("fault: ").next().unwrap_or_default();
        Self {
            code: output.status.code(),
            error: starting("error: ").next().unwrap_or_default().to_owned(),
            unknown_fields: unknown_fields.collect(),
            fault: fault.split(':').next().unwrap_or_default().to_owned(),
        }
    }

    /// The difference to the verdict of the API server, if any.
    fn difference(&self, trial: &Trial) -> Option<String> {
        let problem = match (trial.code, self.code) {
            // A guest may refuse a parent that its schema accepts, but its answer must be sound.
            (201, Some(0)) => None,
            (201, Some(3)) if ["invalid", "retry"].contains(&&*self.fault) => None,
            (422, Some(2)) if is_made_of(&self.error, &trial.causes) => None,
            // The server reports an object that it cannot decode in the words of its decoder.
            (400, Some(2 | 4)) => return None,
            // For `render`, an object without a name is no object at all, whatever else is wrong
            // with it.
            (422, Some(4)) if is_nameless(trial) => return None,
            (201 | 400 | 422, _) => Some("verdicts differ"),
            _ => Some("the API server gave no verdict"),
        };
        let problem = problem.or_else(|| {
            (trial.is_accepted() && self.unknown_fields != trial.unknown_fields)
                .then_some("warnings differ")
        })?;
        Some(format!("{problem}\nrender {self:#?}\nserver {trial:#?}"))
    }
}

/// Returns true if the API server reports a missing name.
fn is_nameless(trial: &Trial) -> bool {
    let missing = "Required value: name or generateName is required";
    let mut causes = trial.causes.iter();
    causes.any(|(field, message)| field == "metadata.name" && message == missing)
}

/// Returns true if a text names exactly these causes, in any order.
fn is_made_of(error: &str, causes: &BTreeSet<(String, String)>) -> bool {
    let texts: Vec<String> = causes
        .iter()
        .map(|(field, message)| format!("{field}: {message}"))
        .collect();
    let Some((_, listed)) = error.split_once(" is invalid: ") else {
        return false;
    };
    if let [one] = texts.as_slice() {
        return listed == one;
    }
    let inner = listed.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    inner.is_some_and(|inner| is_permutation(inner, &texts))
}

/// Returns true if a text consists of all of these, each once, separated by commas.
fn is_permutation(listed: &str, texts: &[String]) -> bool {
    if texts.is_empty() {
        return listed.is_empty();
    }
    texts.iter().enumerate().any(|(index, text)| {
        let Some(rest) = listed.strip_prefix(text.as_str()) else {
            return false;
        };
        let mut others = texts.to_vec();
        others.remove(index);
        match rest.strip_prefix(", ") {
            Some(rest) => is_permutation(rest, &others),
            None => rest.is_empty() && others.is_empty(),
        }
    })
}

/// The examples of a guest that have a given kind.
fn examples(guest: &str, kind: &str) -> Vec<Value> {
    let objects = files(guest)
        .into_iter()
        .flat_map(|file| manifest::load(&file).expect("an example can be read"));
    objects.filter(|object| object["kind"] == kind).collect()
}

/// A kind of parents under test.
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
        let crd = site.plane.user().get(kind, crd);
        let crd = crd
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

    /// Tries parents; returns the differences, and the API server's verdict on each.
    fn run(&self, parents: &[Value]) -> (Vec<String>, Vec<Trial>) {
        let outcome = Mutex::new((Vec::new(), Vec::new()));
        thread::scope(|scope| {
            for part in parents.chunks(parents.len().div_ceil(THREADS)) {
                let outcome = &outcome;
                scope.spawn(move || {
                    for parent in part {
                        let (difference, trial) = self.one(parent);
                        let mut outcome = outcome.lock().expect("no thread panics");
                        outcome.0.extend(difference);
                        outcome.1.push(trial);
                    }
                });
            }
        });
        outcome.into_inner().expect("no thread panics")
    }

    fn one(&self, parent: &Value) -> (Option<String>, Trial) {
        let file = tempfile::Builder::new()
            .suffix(".json")
            .tempfile_in(self.directory.path());
        let file = file.expect("a file can be made");
        fs::write(file.path(), parent.to_string()).expect("a file can be written");
        let mut command = self.site.render(self.guest);
        command.arg("--parent").arg(file.path());
        let rendered = Rendered::new(command);
        let kind = Kind::new(&self.api_version, &self.kind, &self.site.namespace);
        let trial = self.site.plane.user().try_create(kind, parent);
        let trial = trial.expect("the API server answers");
        let difference = rendered.difference(&trial);
        (difference.map(|it| format!("{parent:#}\n{it}")), trial)
    }
}

/// Tries parents of one kind: the number per guest divided by `share`, which must break at least
/// `rules_min` of the CRD's rules.
#[track_caller]
#[expect(
    clippy::print_stdout,
    reason = "the extent of the test is worth a line"
)]
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
            .any(|(field, message)| rule.is_cause(field, message))
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
fn memcached_gets_the_verdicts_of_the_api_server() {
    check_verdicts("memcached", "memcacheds.cache.example.com", 1, 8);
}

#[test]
fn wordpress_gets_the_verdicts_of_the_api_server() {
    check_verdicts("wordpress", "wordpresses.example.com", 1, 17);
}

#[test]
fn etcd_gets_the_verdicts_of_the_api_server() {
    check_verdicts("etcd", "etcdclusters.etcd.ydzs.io", 1, 8);
}

#[test]
fn backup_gets_the_verdicts_of_the_api_server() {
    check_verdicts("backup", "backups.gobackup.io", 2, 13);
    check_verdicts("backup", "cronbackups.gobackup.io", 2, 14);
}
