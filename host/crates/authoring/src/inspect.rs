//! Describes a WebAssembly file or an artifact in a registry: `innkeeper inspect`.
//!
//! Parses the file without running it, and runs `describe` in the sandbox if the file can be loaded. Ignores a
//! cluster's grants: it describes what a plugin could do with everything that it requests.

use innkeeper_command::{Exit, Failure, OrFail as _, Output, ResultFormat, Streams};
use innkeeper_model::Manifest;
use innkeeper_policy::Grants;
use innkeeper_sandbox::{
    Described,
    artifact::{self, Inspection, What},
    description,
};
use serde_json::{Value, json};

use crate::{args::InspectArgs, plugin_file, statuses::ParentDefinitions};

/// Describes a file or an artifact.
///
/// Succeeds only for a plugin that can be loaded. For other files, it prints the known properties and then the error.
pub fn run(args: &InspectArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    let bytes = plugin_file::bytes(&args.target, &args.load.registry)?;
    let inspection = artifact::inspect(&bytes);
    let described =
        plugin_file::describe(&bytes, args.load.cache.open()?.as_ref()).and_then(|described| {
            // Describing a plugin does not compile the schema, which may be invalid or too costly.
            described.check_config_schema(plugin_file::checker())?;
            Ok(described)
        });
    let manifest = described.as_ref().ok().map(Described::manifest);
    let output = match args.output {
        ResultFormat::Text => text(&inspection, manifest),
        ResultFormat::Json => Output::json(&value(&inspection, manifest))?,
    };
    streams.print(&output)?;
    let exit = |error: &plugin_file::Error| match error {
        // Not a usage error, as for other commands: the file is what the user asks about.
        plugin_file::Error::Artifact(_) => Exit::Finding,
        plugin_file::Error::Plugin(error) => plugin_file::exit_for(error),
    };
    described.or_fail_by(exit, "failed to load the file as a plugin")?;
    Ok(Exit::Success)
}

fn what(inspection: &Inspection) -> &'static str {
    match inspection.what {
        What::Component if inspection.contract.is_some() => "plugin",
        What::Component => "component",
        What::CoreModule => "core module",
        What::UnknownEncoding { .. } => "WebAssembly of an unknown encoding",
        What::NotWasm => "not WebAssembly",
    }
}

fn value(inspection: &Inspection, manifest: Option<&Manifest>) -> Value {
    json!({
        "what": what(inspection),
        "size": inspection.size_bytes,
        "digest": inspection.digest.to_string(),
        "contract": inspection.contract,
        "embedded": inspection.is_described,
        "imports": inspection.imports,
        "exports": inspection.exports,
        "producers": inspection.producers.iter().map(|producer| json!({
            "role": producer.role,
            "name": producer.name,
            "version": producer.version,
        })).collect::<Vec<_>>(),
        "plugin": manifest.map(plugin_value),
    })
}

fn plugin_value(manifest: &Manifest) -> Value {
    let mut value = description::value(manifest);
    value["crds"] = crds(manifest).into();
    value["amountsTo"] = Grants::requested(manifest).powers(manifest).into();
    value["configurable"] = manifest.config_schema.is_some().into();
    value["problems"] = problems(manifest).into();
    value
}

/// What would fail on a cluster although the file can be loaded.
fn problems(manifest: &Manifest) -> Vec<String> {
    ParentDefinitions::new(manifest).refusals(&manifest.name)
}

fn crds(manifest: &Manifest) -> Vec<&str> {
    manifest
        .crds
        .iter()
        .filter_map(innkeeper_crd::name_of)
        .collect()
}

fn text(inspection: &Inspection, manifest: Option<&Manifest>) -> Output {
    let mut out = PropertyLines::default();
    out.one("what", what(inspection));
    if let Some(manifest) = manifest {
        out.one("name", manifest.name.as_str());
        out.one("version", &manifest.version);
    }
    out.one("size", &format!("{} bytes", inspection.size_bytes));
    out.one("digest", &inspection.digest.to_string());
    if let Some(contract) = &inspection.contract {
        out.one("contract", contract);
    }
    out.many("imports", &inspection.imports);
    out.many("exports", &inspection.exports);
    let producers: Vec<String> = inspection
        .producers
        .iter()
        .map(|producer| format!("{}: {} {}", producer.role, producer.name, producer.version))
        .collect();
    out.many("made by", &producers);
    if inspection.is_described {
        out.one("carries", "its description");
    }
    if let Some(manifest) = manifest {
        describe_text(manifest, &mut out);
    }
    out.output
}

fn describe_text(manifest: &Manifest, out: &mut PropertyLines) {
    let parents: Vec<String> = manifest
        .parents
        .iter()
        .map(|parent| format!("{} ({}, {})", parent.kind, parent.plural, parent.scope))
        .collect();
    out.many("parents", &parents);
    out.many("brings", &crds(manifest));
    let children: Vec<String> = manifest
        .children
        .iter()
        .map(|child| {
            let note = if child.required { "" } else { " (optional)" };
            format!("{}{note}", child.kind)
        })
        .collect();
    out.many("children", &children);
    let reads: Vec<String> = manifest
        .reads
        .iter()
        .map(|read| {
            let labels = match &read.label_selector {
                all if all.selects_all() => String::new(),
                selector => format!(", labels {selector}"),
            };
            format!("{} ({}, {}{labels})", read.kind, read.access, read.scope)
        })
        .collect();
    out.many("reads", &reads);
    // With all requests granted: inspect does not know a cluster's grants.
    out.many("amounts to", &Grants::requested(manifest).powers(manifest));
    out.one("finalizes", if manifest.finalize { "yes" } else { "no" });
    let configurable = manifest.config_schema.is_some();
    let schema = "yes, --output json has the schema";
    out.one("configurable", if configurable { schema } else { "no" });
    out.many("problems", &problems(manifest));
}

/// Output lines with the names in the first column.
#[derive(Default)]
struct PropertyLines {
    output: Output,
}

impl PropertyLines {
    fn one(&mut self, name: &str, value: &str) {
        self.output.line(format!("{name:<13} {value}"));
    }

    fn many(&mut self, name: &str, values: &[impl AsRef<str>]) {
        for (index, value) in values.iter().enumerate() {
            self.one(if index == 0 { name } else { "" }, value.as_ref());
        }
    }
}

#[cfg(test)]
mod tests;
