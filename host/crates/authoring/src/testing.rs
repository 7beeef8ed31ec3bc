//! Tests a plugin without a cluster: `innkeeper test`.
//!
//! Cases are passes with an expected answer. Properties hold for every parent; they are checked for the cases' parents
//! and for parents that are generated from the schema. A parent that breaks a property is shrunk before it is printed.

mod cases;
mod properties;
mod show;
mod typed;

#[cfg(test)]
mod tests;

use std::{
    fs,
    path::{Path, PathBuf},
};

use innkeeper_command::{Exit, Failure, OrFail as _, Streams};
use innkeeper_crd::{Schema, schema_of};
use innkeeper_model::{Limits, Manifest, ParentKind, yaml};
use serde_json::{Map, Value, json};

use crate::{
    args::{Inspected, LoadArgs, TestArgs},
    document::Document,
    generate::{Choices, generate},
    plugin_file,
    render::{self, Call, Offline},
};
use cases::Case;
use properties::{CallFacts, Cost, Finding, Property};

/// The most attempts to shrink a failing parent.
const SHRINKS_MAX: usize = 400;

/// The most numbers that determine a parent: more than the shipped examples have fields.
const NUMBERS_MAX: u32 = 60;

/// The tolerated excess over the budget: one tenth.
const TOLERANCE: u64 = 10;

/// One test's result; `problem` is none if it passed.
#[derive(Debug, PartialEq, Eq)]
struct TestResult {
    name: String,
    problem: Option<String>,
}

/// Runs the cases and the properties and prints the results.
pub fn run(args: &TestArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    let (file, usual_cases) = find(&args.plugin)?;
    let directory = args.cases.as_ref().or(usual_cases.as_ref());
    let cases = match directory {
        Some(directory) => Case::all(directory)?,
        None => Vec::new(),
    };
    let config = render::one_object(args.config.as_deref(), streams)?;
    let grants = render::grants_in(args.grants.as_deref(), streams)?;
    let from = Inspected::File(file);
    let load = LoadArgs {
        cache: args.cache.clone(),
        ..LoadArgs::default()
    };
    let loaded = render::described(&from, &load)?;
    let mut results = Vec::new();
    let mut parents = Vec::new();
    for case in &cases {
        let (result, parent) = case.run((&loaded, &from), args.update, streams)?;
        results.push(result);
        parents.extend(parent);
    }
    let plugin = loaded
        .configure(&config, plugin_file::checker())
        .or_fail_by(plugin_file::exit_for, "failed to configure the plugin")?;
    let manifest = plugin.manifest();
    let limits = Limits::default();
    let call: &Call<'_> = &|request, reads, context| plugin.call(request, reads, context, &limits);
    let offline = Offline::new(manifest, grants.as_ref(), &from, call)?;
    let mut calls = CallFacts::default();
    let findings = properties(&offline, &parents, args.parents, &mut calls)?;
    let CallFacts { cost, expiring_job } = calls;
    let over =
        directory.map(|directory| over_budget(&directory.join("budget.yaml"), cost, args.update));
    let over = over.transpose()?.flatten();
    results.extend(Property::ALL.map(|property| {
        let problem = findings
            .iter()
            .find(|failure| failure.property == property)
            .map(show::finding);
        TestResult {
            name: format!("property {}", <&str>::from(property)),
            problem: problem.or_else(|| over.clone().filter(|_| property == Property::Cheap)),
        }
    }));
    streams.print(&show::all(&results, cost, args.output)?)?;
    if let Some(key) = expiring_job {
        streams.note(&format!(
            "warning: the Job of child \"{key}\" has spec.ttlSecondsAfterFinished: the cluster deletes it after its end, and the host runs it again; leave the field out"
        ));
    }
    let failed = results.iter().any(|result| result.problem.is_some());
    Ok(if failed { Exit::Finding } else { Exit::Success })
}

/// Returns the plugin's file, and the default directory for cases.
fn find(given: &Path) -> Result<(PathBuf, Option<PathBuf>), Failure> {
    if !given.is_dir() {
        return Ok((given.to_owned(), None));
    }
    let cases = given.join("tests");
    Ok((plugin_file::built(given)?, cases.is_dir().then_some(cases)))
}

/// Checks the properties for the cases' parents and for generated ones; returns the smallest findings.
fn properties(
    plugin: &Offline<'_>,
    cases: &[Document],
    count: u32,
    calls: &mut CallFacts,
) -> Result<Vec<Finding>, Failure> {
    let mut findings: Vec<Finding> = Vec::new();
    // The first finding for each property.
    let is_new = |findings: &[Finding], finding: &Finding| {
        findings
            .iter()
            .all(|other| other.property != finding.property)
    };
    for parent in cases {
        let finding = properties::finding_of(plugin, parent, calls)?
            .filter(|finding| is_new(&findings, finding));
        findings.extend(finding);
    }
    for parent in &plugin.manifest.parents {
        let Some(kind) = Generator::new(plugin.manifest, parent)? else {
            continue;
        };
        for seed in 0..count {
            // Small parents first.
            let choices = Choices::random(seed.into(), seed % NUMBERS_MAX);
            if let Some(finding) = kind.check(plugin, &choices, calls)?
                && is_new(&findings, &finding)
            {
                findings.push(kind.shrink(plugin, choices, finding)?);
            }
        }
    }
    Ok(findings)
}

/// Generates parents for one kind.
struct Generator<'a> {
    kind: &'a ParentKind,
    schema: &'a Value,
    compiled: Schema,
}

impl<'a> Generator<'a> {
    /// Returns none if the plugin does not contain the kind's definition.
    fn new(manifest: &'a Manifest, kind: &'a ParentKind) -> Result<Option<Self>, Failure> {
        let Some(crd) = manifest.crd_for(&kind.kind.group_kind()) else {
            return Ok(None);
        };
        let Some(schema) = schema_of(crd, &kind.kind.version) else {
            return Ok(None);
        };
        let compiled = Schema::new(crd, &kind.kind.version).or_fail(
            Exit::Finding,
            "failed to compile a CustomResourceDefinition of the plugin",
        )?;
        Ok(Some(Self {
            kind,
            schema,
            compiled,
        }))
    }

    /// Returns a parent as the API server would store it; none if it would be rejected.
    fn parent(&self, choices: &Choices) -> Option<Document> {
        let mut choices = choices.clone();
        let mut object = Map::new();
        for (name, schema) in self.schema["properties"].as_object().into_iter().flatten() {
            if !["apiVersion", "kind", "metadata", "status"].contains(&name.as_str()) {
                object.insert(name.clone(), generate(schema, &mut choices));
            }
        }
        let kind = &self.kind.kind;
        object.insert("apiVersion".to_owned(), kind.api_version().into());
        object.insert("kind".to_owned(), (*kind.kind).into());
        let mut metadata = json!({"name": "a"});
        if self.kind.scope == innkeeper_model::Scope::Namespaced {
            metadata["namespace"] = json!("default");
        }
        object.insert("metadata".to_owned(), metadata);
        let admitted = self.compiled.admit(object).ok()?;
        Document::new(Value::Object(admitted.object)).ok()
    }

    fn check(
        &self,
        plugin: &Offline<'_>,
        choices: &Choices,
        calls: &mut CallFacts,
    ) -> Result<Option<Finding>, Failure> {
        let Some(parent) = self.parent(choices) else {
            return Ok(None);
        };
        properties::finding_of(plugin, &parent, calls)
    }

    /// Makes the parent smaller while it breaks the same property.
    fn shrink(
        &self,
        plugin: &Offline<'_>,
        choices: Choices,
        finding: Finding,
    ) -> Result<Finding, Failure> {
        let property = finding.property;
        let mut smallest = (choices, finding);
        let mut tries_left = SHRINKS_MAX;
        'smaller: loop {
            for choices in smallest.0.smaller() {
                if tries_left == 0 {
                    break 'smaller;
                }
                tries_left -= 1;
                let finding = self.check(plugin, &choices, &mut CallFacts::default())?;
                if let Some(finding) = finding.filter(|finding| finding.property == property) {
                    smallest = (choices, finding);
                    continue 'smaller;
                }
            }
            break;
        }
        Ok(smallest.1)
    }
}

/// Compares the cost with a budget file; writes the file if the user requested it.
fn over_budget(path: &Path, cost: Cost, update: bool) -> Result<Option<String>, Failure> {
    let at = path.display();
    if update {
        let budget = json!({"fuel": cost.fuel, "memoryBytes": cost.memory_bytes});
        let text = yaml::write(&[budget]).or_fail(Exit::Failure, "failed to encode the budget")?;
        fs::write(path, text).or_fail(Exit::Failure, format!("failed to write {at}"))?;
        return Ok(None);
    }
    let Ok(text) = fs::read_to_string(path) else {
        return Ok(None);
    };
    let budget = yaml::read(&text).or_fail(Exit::Usage, format!("failed to parse {at}"))?;
    let used = [
        ("fuel", cost.fuel),
        (
            "memoryBytes",
            u64::try_from(cost.memory_bytes).unwrap_or(u64::MAX),
        ),
    ];
    Ok(used.into_iter().find_map(|(name, used)| {
        let budget = budget.first()?[name].as_u64()?;
        let over = used > budget.saturating_add(budget / TOLERANCE);
        over.then(|| format!("{name} is {used}, and the budget in {at} is {budget}: if this is right, run again with --update"))
    }))
}
