//! Builds plugins from source to components with an embedded description: `innkeeper build`.
//!
//! `innkeeper-guest-build` turns a crate into a component. This module loads each component as the host does, calls
//! `describe`, and embeds the answer in the component. Builds are reproducible: the same source gives the same bytes on
//! every machine.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use innkeeper_command::{Exit, Failure, OrFail as _, Output, ResultFormat, Streams, file};
use innkeeper_guest_build::{
    self as guest_build, Component, Environment, Guest, Request, Toolchain,
};
use innkeeper_model::Digest;
use innkeeper_sandbox::{artifact, description};
use serde_json::{Value, json};

use crate::{args::BuildArgs, plugin_file, statuses::ParentDefinitions};

/// The message for a failed build.
const BUILD: &str = "failed to build";

/// Builds components and prints their digests.
pub fn run(args: &BuildArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    let out_dir = args.out_dir();
    let workspace = Workspace::open(args, &mut |line| streams.note(line))?;
    // Components without a description go to a temporary directory, so that the output directory never contains one.
    let bare = fs::create_dir_all(&out_dir)
        .and_then(|()| tempfile::tempdir_in(&out_dir))
        .or_fail(
            Exit::Failure,
            format!("failed to create a directory in {}", out_dir.display()),
        )?;
    let built = workspace.build(bare.path())?;
    let results = built
        .iter()
        .map(|component| finish(component, &out_dir))
        .collect::<Result<Vec<_>, _>>()?;
    streams.print(&text(args.output, &results)?)?;
    Ok(Exit::Success)
}

/// The crates that a command builds, perhaps many times, and the compiler for them.
pub struct Workspace {
    environment: Environment,
    toolchain: Toolchain,
    root: PathBuf,
    guests: Vec<Guest>,
    target_dir: PathBuf,
    profile: &'static str,
    locked: bool,
}

impl Workspace {
    /// Finds the crates and the compiler; fails without either.
    pub fn open(args: &BuildArgs, report: &mut dyn FnMut(&str)) -> Result<Self, Failure> {
        let directory = args.directory.display();
        let environment = Environment::from_process();
        let no_directory = format!("failed to open the directory {directory}");
        let root = args
            .directory
            .canonicalize()
            .or_fail(Exit::Usage, &no_directory)?;
        let guests = if args.packages.is_empty() {
            Guest::all(&environment, &root).or_fail_by(exit, BUILD)?
        } else {
            args.packages.clone()
        };
        if guests.is_empty() {
            let message = format!(
                "no package in {directory} makes a plugin: add crate-type = [\"cdylib\", \"rlib\"] to its [lib]"
            );
            return Err(Failure::new(Exit::Usage, message));
        }
        let toolchain = Toolchain::find(&environment, &root, report).or_fail(
            Exit::Failure,
            "failed to find a compiler that can build plugins",
        )?;
        // Cargo runs in the workspace, where a relative path leads elsewhere.
        let target_dir = std::path::absolute(args.target_dir());
        Ok(Self {
            environment,
            toolchain,
            root,
            guests,
            target_dir: target_dir.or_fail(Exit::Usage, no_directory)?,
            profile: args.profile(),
            locked: args.locked,
        })
    }

    /// The plugins in these crates.
    pub fn guests(&self) -> &[Guest] {
        &self.guests
    }

    /// Builds a component without a description for each plugin in this directory.
    pub fn build(&self, to: &Path) -> Result<Vec<Component>, Failure> {
        let request = Request {
            workspace_root: self.root.clone(),
            guests: self.guests.clone(),
            target_dir: self.target_dir.clone(),
            out_dir: to.to_owned(),
            profile: self.profile.to_owned(),
            locked: self.locked,
        };
        guest_build::build(&self.environment, &self.toolchain, &request, &mut |_| ())
            .or_fail_by(exit, BUILD)
    }
}

/// Returns the exit code for a failed build: some failures are usage errors.
const fn exit(error: &guest_build::Error) -> Exit {
    match error {
        guest_build::Error::ReadWorkspace { .. }
        | guest_build::Error::UnknownPackage { .. }
        | guest_build::Error::NoModule { .. } => Exit::Usage,
        _ => Exit::Failure,
    }
}

/// Embeds the description in a component and writes it to the output directory.
fn finish(component: &Component, out_dir: &Path) -> Result<Value, Failure> {
    let Component { guest, path, .. } = component;
    let package = &guest.package;
    let unusable = format!("failed to load the component of {package} as a plugin");
    let (bytes, described) = plugin_file::load(path, None).or_fail(Exit::Failure, &unusable)?;
    described
        .check_config_schema(plugin_file::checker())
        .or_fail(Exit::Failure, &unusable)?;
    let manifest = described.manifest();
    let refusals = ParentDefinitions::new(manifest).refusals(&manifest.name);
    if !refusals.is_empty() {
        let message = format!("failed to accept {package}: {}", refusals.join("; "));
        return Err(Failure::new(Exit::Failure, message));
    }
    let bytes = description::embed(&bytes, manifest);
    // The description makes the component larger: check the host's limits again here, and not only at deployment.
    artifact::check(&bytes, &artifact::Limits::default()).or_fail(Exit::Failure, unusable)?;
    let file = out_dir.join(format!("{}.wasm", guest.name));
    let message = format!("failed to write {}", file.display());
    keep(&file, &bytes).or_fail(Exit::Failure, message)?;
    Ok(json!({
        "package": package,
        "file": file,
        "digest": Digest::hash(&bytes).to_string(),
        "size": bytes.len(),
        "name": manifest.name.as_str(),
        "version": manifest.version,
    }))
}

/// Writes a file atomically; a file with the same content keeps the modification time.
fn keep(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    file::replace(path, bytes)
}

fn text(output: ResultFormat, built: &[Value]) -> Result<Output, Failure> {
    match output {
        ResultFormat::Json => Output::json(&built),
        ResultFormat::Text => {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let mut output = Output::default();
            for component in built {
                let digest = text(&component["digest"]);
                output.line(format!("{digest}  {}", text(&component["file"])));
            }
            Ok(output)
        }
    }
}

#[cfg(test)]
mod tests {
    use innkeeper_command::{Exit, Failure};
    use innkeeper_sandbox::testing::{Description, guest};

    use super::*;

    /// Builds a component with a description that is refused, and returns the failure.
    fn refusal(name: &str, description: Description) -> (Exit, String) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(format!("{name}.wasm"));
        let bytes = guest().describing(description).build();
        fs::write(&path, &bytes).unwrap();
        let component = Component {
            guest: Guest::for_package(name),
            path,
            size_bytes: bytes.len(),
            written: true,
        };
        let out = tempfile::tempdir().unwrap();
        let failure: Failure = finish(&component, out.path()).unwrap_err();
        assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
        let text = innkeeper_model::error_chain(&failure).to_string();
        (failure.exit(), text)
    }

    #[test]
    fn a_component_with_a_schema_outside_of_the_accepted_form_is_not_built() {
        let description = Description {
            config_schema: Some(r##"{"properties": {"a": {"$ref": "#"}}}"##.to_owned()),
            ..Description::default()
        };
        let (exit, text) = refusal("pond", description);
        assert_eq!(exit, Exit::Failure);
        let expected = "config-schema.properties.a.$ref: $ref is not accepted: state the schema in place of the reference";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn a_component_whose_definition_refuses_the_conditions_of_the_host_is_not_built() {
        let status = json!({
            "type": "object", "required": ["address"],
            "properties": {"address": {"type": "string"}, "conditions": {
                "type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
            }},
        });
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "webs.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": "Web", "plural": "webs"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"status": status}}},
                }],
            },
        });
        let description = Description {
            crds: vec![crd.to_string()],
            ..Description::default()
        };
        let (_, text) = refusal("web", description);
        let expected = "the definition webs.example.com v1 refuses the host's conditions";
        assert!(
            text.contains(expected) && text.contains("status.address: is required"),
            "{text}"
        );
    }
}
