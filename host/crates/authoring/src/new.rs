//! Creates plugin projects: `innkeeper new`.
//!
//! The project appears as a whole or not at all: the files are written beside it first, and then moved. It never runs
//! cargo: the manifest, the lock file, the SDK and the kit are embedded.

mod definition;
mod types;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use heck::ToUpperCamelCase as _;
use innkeeper_command::{Exit, Failure, OrFail as _, Output, Streams};
use innkeeper_model::{Gvk, PluginName, yaml};
use serde_json::{Value, json};

use crate::args::{NewArgs, Sdk};
use definition::Definition;

// The SDK and kit files with their paths, and the lock file from this program's build.
include!(concat!(env!("OUT_DIR"), "/sdk.rs"));

/// The SDK and kit directory in a project.
const CARRIED: &str = ".innkeeper";

/// Names that mean another crate to cargo or the compiler.
const TAKEN: [&str; 13] = [
    "alloc",
    "core",
    "innkeeper",
    "innkeeper-kit",
    "innkeeper-sdk",
    "k8s-openapi",
    "kube",
    "proc-macro",
    "schemars",
    "serde",
    "serde-json",
    "std",
    "test",
];

/// Creates a project and prints the next commands.
pub fn run(args: &NewArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    let directory = &args.directory;
    let usage = |message: String| Err(Failure::new(Exit::Usage, message));
    let name = directory
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    if let Err(problem) = check(name) {
        return usage(format!("failed to name a plugin \"{name}\": {problem}"));
    }
    // Not `exists`, which is false for a dangling link.
    if directory.symlink_metadata().is_ok() {
        let path = directory.display();
        return usage(format!("{path} exists: choose another name, or remove it"));
    }
    let parents = match &args.from_crd {
        Some(file) => {
            ParentTypes::from_definition(Definition::read(file, args.kind.as_ref())?, streams)
        }
        None => ParentTypes::own(args.kind.clone().unwrap_or_else(|| usual_kind(name))),
    };
    let kind = &parents.kind.kind;
    if types::is_used(kind) {
        return usage(format!(
            "failed to name a type {kind} after the kind: the generated code needs Rust's own {kind}; choose another kind"
        ));
    }
    let mut files = files(name, &parents, &Dependencies::new(args.sdk.as_ref())?)?;
    if args.sdk.is_none() {
        files.extend(carried());
    }
    write(directory, &files).or_fail(
        Exit::Failure,
        format!("failed to create {}", directory.display()),
    )?;
    let path = directory.display();
    let mut output = Output::from_line(format!("created {path}"));
    output.line("next:");
    output.line(format!("  cd {path}"));
    for command in ["cargo test", "innkeeper build", "innkeeper test"] {
        output.line(format!("  {command}"));
    }
    output.line(format!(
        "  innkeeper render --plugin target/plugins/{name}.wasm tests/example/parent.yaml"
    ));
    streams.print(&output)?;
    Ok(Exit::Success)
}

/// Checks a name for the plugin, the package and the Rust crate at once.
fn check(name: &str) -> Result<(), String> {
    PluginName::new(name).map_err(|error| error.to_string())?;
    if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Err("a package begins with a letter".to_owned());
    }
    if TAKEN.contains(&name) || types::is_keyword(name) {
        return Err(
            "the name is a keyword of Rust, or another crate of the build has it".to_owned(),
        );
    }
    Ok(())
}

fn usual_kind(name: &str) -> Gvk {
    Gvk::new("example.com", "v1", name.to_upper_camel_case())
}

/// A project's parents, as in the files.
struct ParentTypes {
    kind: Gvk,
    /// The text for `src/types.rs`.
    types: String,
    /// The text for `src/definition.json`.
    definition: Option<String>,
    example: Value,
    /// The example's spec as the plugin gets it; none if the example is invalid.
    stored: Option<Value>,
    is_cluster_scoped: bool,
}

impl ParentTypes {
    /// Returns parents whose definition comes from their Rust types.
    fn own(kind: Gvk) -> Self {
        let example = json!({
            "apiVersion": kind.api_version(),
            "kind": *kind.kind,
            "metadata": {"name": "example", "namespace": "default"},
            "spec": {"greeting": "hello"},
        });
        Self {
            types: include_str!("new/template/types.rs.in").to_owned(),
            definition: None,
            stored: Some(example["spec"].clone()),
            example,
            is_cluster_scoped: false,
            kind,
        }
    }

    /// Returns a definition's parents.
    fn from_definition(definition: Definition, streams: &mut Streams<'_>) -> Self {
        let (example, stored) = definition.example();
        if stored.is_none() {
            streams.note(
                "warning: no valid parent was found for the rules of the definition: correct tests/example/parent.yaml",
            );
        }
        let mut types = include_str!("new/template/definition.rs.in")
            .replace("{{plural}}", &definition.plural)
            .replace("{{scope}}", definition.scope());
        types.push_str(&types::rust_types(
            &definition.kind.kind,
            &definition.schema,
        ));
        Self {
            types,
            definition: Some(format!("{:#}\n", definition.object)),
            example,
            stored,
            is_cluster_scoped: definition.is_cluster_scoped,
            kind: definition.kind,
        }
    }
}

/// The dependencies on the SDK and the kit as TOML.
#[derive(Debug)]
struct Dependencies {
    sdk: String,
    kit: String,
}

impl Dependencies {
    fn new(origin: Option<&Sdk>) -> Result<Self, Failure> {
        let (sdk, kit) = match origin {
            Some(Sdk::Version(version)) => Self::same(format!("version = \"{version}\"")),
            Some(Sdk::Git { url, rev }) => Self::same(format!("git = {url:?}, rev = {rev:?}")),
            Some(Sdk::Path(path)) => {
                // In a checkout the kit is beside the SDK.
                (local(path)?, local(&path.join("../kit"))?)
            }
            // This program was built from a published package, which carries no SDK.
            None if FILES.is_empty() => {
                Self::same(format!("version = \"{}\"", env!("CARGO_PKG_VERSION")))
            }
            None => (
                format!("path = \"{CARRIED}/sdk\""),
                format!("path = \"{CARRIED}/kit\""),
            ),
        };
        Ok(Self {
            sdk: format!("{{ {sdk}, features = [\"v1_33\"] }}"),
            kit: format!("{{ {kit} }}"),
        })
    }

    /// The origin for two crates that are published together.
    fn same(origin: String) -> (String, String) {
        (origin.clone(), origin)
    }
}

fn local(path: &Path) -> Result<String, Failure> {
    let message = format!("failed to open the directory {}", path.display());
    let path = path.canonicalize().or_fail(Exit::Usage, message)?;
    // A Rust debug string is also a basic TOML string.
    Ok(format!("path = {:?}", path.to_string_lossy()))
}

/// Returns the project files, without the SDK and the kit.
fn files(
    name: &str,
    parents: &ParentTypes,
    dependencies: &Dependencies,
) -> Result<Vec<(PathBuf, String)>, Failure> {
    let Gvk {
        group,
        version,
        kind,
    } = &parents.kind;
    let example = yaml::write(std::slice::from_ref(&parents.example))
        .or_fail(Exit::Failure, "failed to encode the example")?;
    // Children of cluster-scoped parents name their namespace, which needs a grant.
    let (mutable, namespace) = if parents.is_cluster_scoped {
        let statement = "config.metadata.namespace = Some(\"default\".to_owned());";
        ("mut ", format!("\n        {statement}"))
    } else {
        ("", String::new())
    };
    let filled = |text: &str| {
        // The example goes last: it is user text.
        text.replace("{{name}}", name)
            .replace("{{group}}", group)
            .replace("{{version}}", version)
            .replace("{{kind}}", kind)
            .replace("{{sdk}}", &dependencies.sdk)
            .replace("{{kit}}", &dependencies.kit)
            .replace("{{mut}}", mutable)
            .replace("{{namespace}}", &namespace)
            .replace("{{example}}", &format!("{:#}", parents.example))
    };
    let mut files: Vec<(PathBuf, String)> = [
        ("Cargo.toml", include_str!("new/template/Cargo.toml.in")),
        ("README.md", include_str!("new/template/README.md.in")),
        ("src/lib.rs", include_str!("new/template/lib.rs.in")),
        ("src/types.rs", &parents.types),
        (
            ".github/workflows/checks.yaml",
            include_str!("new/template/checks.yaml.in"),
        ),
        (".gitignore", "/target\n"),
        ("tests/example/parent.yaml", &example),
    ]
    .map(|(path, text)| (path.into(), filled(text)))
    .into();
    if let Some(spec) = &parents.stored {
        let expected = yaml::write(&[expected(name, spec)])
            .or_fail(Exit::Failure, "failed to encode the example")?;
        files.push(("tests/example/expect.yaml".into(), expected));
    }
    let definition = parents.definition.clone();
    files.extend(definition.map(|text| ("src/definition.json".into(), text)));
    // With the versions that this program was tested with; cargo drops packages that the project does not need.
    if !LOCK.is_empty() {
        files.push(("Cargo.lock".into(), LOCK.to_owned()));
    }
    Ok(files)
}

/// Returns the new plugin's answer to the example, as `innkeeper test` compares it.
fn expected(name: &str, spec: &Value) -> Value {
    json!({
        "outcome": "desired",
        "fault": null,
        "children": [{
            "key": "config",
            "apply": "always",
            "removal": "delete",
            "readiness": "derive",
            "after": [],
            "generate": [],
            "object": {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": "example",
                    "namespace": "default",
                    "labels": {
                        "app.kubernetes.io/component": "config",
                        "app.kubernetes.io/instance": "example",
                        "app.kubernetes.io/managed-by": "innkeeper",
                        "app.kubernetes.io/name": name,
                    },
                },
                "data": {"spec.json": spec.to_string()},
            },
        }],
        "status": null,
        "conditions": [],
        "events": [],
        "requeueAfterMs": null,
    })
}

/// Returns the embedded SDK and kit files.
fn carried() -> impl Iterator<Item = (PathBuf, String)> {
    let path = |path: &str| Path::new(CARRIED).join(path);
    FILES
        .iter()
        .map(move |(name, text)| (path(name), (*text).to_owned()))
}

/// Writes files to a directory that does not exist.
fn write(directory: &Path, files: &[(PathBuf, String)]) -> io::Result<()> {
    let around = match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // Beside the project, because a rename does not reach another file system.
    let unfinished = tempfile::Builder::new()
        .prefix(".innkeeper-new-")
        // The default mode for a new directory, before the umask.
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .tempdir_in(around)?;
    for (name, text) in files {
        let path = unfinished.path().join(name);
        fs::create_dir_all(path.parent().unwrap_or(around))?;
        fs::write(path, text)?;
    }
    fs::rename(unfinished.path(), directory)?;
    // It has moved, so there is nothing to remove.
    drop(unfinished.keep());
    Ok(())
}

#[cfg(test)]
mod tests;
