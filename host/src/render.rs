//! One pass without a cluster: `innkeeper render`.
//!
//! The call, the check of the answer and the children are made by the code of the host, so that the printed objects are
//! those that the host would apply.
//! There is no cluster: every kind counts as served, and only the given objects exist.
//!
//! An observed object is the parent's child if its controller is the parent (by UID if the parent's file has one, else
//! by kind and name), or if it has no controller and is retained for the parent.
//! The plugin's reads see all observed objects, including the parent and the children.
//!
//! Missing fields of the parent get the values that an API server would set: the namespace `default`, a fixed UID,
//! `generation: 1`, and the time of the pass as `creationTimestamp`, in phase finalize also as `deletionTimestamp`.

mod document;
mod guest;
mod input;
mod observed;
mod outcome;
mod parent;
mod reads;
mod replay;
mod seed;
#[cfg(test)]
mod tests;
mod yaml_output;

use std::{
    io,
    path::{Path, PathBuf},
};

use innkeeper_cluster as cluster;
use innkeeper_model::{HashKey, Limits, Manifest, Phase};
use innkeeper_plugin_controller as plugins;
use innkeeper_policy::{self as policy, Grants};
use innkeeper_sandbox::{self as plugin, CallReport, Request, Said};
use innkeeper_schema::{self as schema, Kinds};

use crate::{
    config::{Exit, HOST_NAMESPACE, OutputFormat, RenderArgs, RenderPhase, Streams},
    run::HASH_KEY_SECRET,
};
use guest::OfflineGuest;
use observed::ObservedObjects;

/// The default hash key: fixed, so that the output is reproducible. It protects nothing, as there is no cluster.
const HASH_KEY: [u8; 32] = *b"innkeeper render: not a secret! ";

/// A failure that prevents the pass or its output.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, or the standard input, cannot be read.
    #[error("failed to read {from}")]
    Read {
        /// The file, or the standard input.
        from: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The content is neither YAML nor JSON.
    #[error("failed to parse {from}")]
    Parse {
        /// The file, or the standard input.
        from: String,
        /// The cause.
        #[source]
        source: innkeeper_model::yaml::Error,
    },
    /// A document is not a Kubernetes object.
    #[error("document {number} of {from} is not an object: {problem}")]
    NoObject {
        /// The file, or the standard input.
        from: String,
        /// The position of the document, from 1.
        number: usize,
        /// The missing or invalid field.
        problem: String,
    },
    /// Neither a parent nor a recording is given.
    #[error("nothing to render: set --parent FILE or --recording FILE")]
    Nothing,
    /// The content is not the recording of a pass.
    #[error(
        "{from} is no recording of a pass: use one JSON object that a host logged at the target recording"
    )]
    Recording {
        /// The file, or the standard input.
        from: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// The file does not contain exactly one parent.
    #[error("{from} contains {found} parents of kind {kinds}: the plugin needs exactly one")]
    Parents {
        /// The file, or the standard input.
        from: String,
        /// The number of parents in the file.
        found: usize,
        /// The plugin's parent kinds, as text.
        kinds: String,
    },
    /// The plugin does not support the parent's version.
    #[error(
        "the parent is {is}, but the plugin supports {speaks}: convert the parent to that version"
    )]
    ParentVersion {
        /// The version in the file.
        is: String,
        /// The version of the plugin.
        speaks: String,
    },
    /// The configuration or the grants are not one object.
    #[error("{from} must contain exactly one object")]
    Shape {
        /// The file, or the standard input.
        from: String,
    },
    /// The grants are invalid.
    #[error("failed to parse the grants in {from}")]
    Grants {
        /// The file, or the standard input.
        from: String,
        /// The cause.
        #[source]
        source: plugins::resource::Error,
    },
    /// The file of the hash key is empty.
    #[error(
        "{from} is empty: it must contain the cluster's hash key, the bytes of the Secret {HASH_KEY_SECRET}"
    )]
    NoHashKey {
        /// The file, or the standard input.
        from: String,
    },
    /// The cache of compiled plugins cannot be used.
    #[error("failed to open the cache of compiled plugins; set another --cache-dir")]
    Cache(#[source] plugin::artifact::Error),
    /// The plugin's file cannot be read or compiled.
    #[error("failed to load the plugin {}", path.display())]
    LoadArtifact {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: plugin::artifact::Error,
    },
    /// The plugin cannot be described or configured.
    #[error("failed to start the plugin {}", path.display())]
    LoadPlugin {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: plugin::Error,
    },
    /// The grants do not cover a requirement of the plugin.
    #[error(
        "the plugin requires more than its grants allow: {missing}; grant it with --grants FILE"
    )]
    NotGranted {
        /// The missing grants.
        missing: String,
    },
    /// A CustomResourceDefinition of the plugin is invalid.
    #[error("failed to compile a CustomResourceDefinition of the plugin")]
    Schema(#[source] schema::Error),
    /// An object violates its schema or a validation rule.
    #[error(transparent)]
    Rejected(schema::Rejection),
    /// An object cannot be converted to its form in the cache.
    #[error("failed to convert {object}")]
    Present {
        /// The object.
        object: String,
        /// The cause.
        #[source]
        source: cluster::Malformed,
    },
    /// The result cannot be written.
    #[error("failed to write the result")]
    Write(#[source] io::Error),
    /// The result cannot be encoded.
    #[error("failed to encode the result")]
    Encode(#[source] innkeeper_model::yaml::Error),
}

impl Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Rejected(_) | Self::Schema(_) => Exit::Finding,
            Self::LoadPlugin { source, .. } => Exit::of_plugin(source),
            Self::Cache(_) | Self::Write(_) | Self::Encode(_) => Exit::Failure,
            _ => Exit::Usage,
        }
    }
}

/// Runs one pass and prints its result; `now_ms` is the caller's clock, in milliseconds since the epoch.
///
/// Errors go to the standard error.
pub fn run(args: &RenderArgs, now_ms: u64, streams: &mut Streams<'_>) -> Exit {
    let done = match (&args.recording, &args.parent) {
        (Some(recording), _) => replay::run(args, recording, streams),
        (None, Some(parent)) => {
            guest::load(args, streams).and_then(|guest| pass(&guest, args, parent, now_ms, streams))
        }
        (None, None) => Err(Error::Nothing),
    };
    streams.end(done, Error::exit)
}

fn pass(
    guest: &impl OfflineGuest,
    args: &RenderArgs,
    parent: &Path,
    now_ms: u64,
    streams: &mut Streams<'_>,
) -> Result<Exit, Error> {
    let manifest = guest.manifest();
    let grants = granted(args, manifest, streams)?;
    let now_ms = args.now.map_or(now_ms, |now| {
        u64::try_from(now.as_millisecond()).unwrap_or_default()
    });
    let phase = phase(args, manifest, streams);
    let hash_key = match &args.hash_key {
        Some(path) => input::hash_key(path, streams)?,
        None => HashKey::new(HASH_KEY),
    };
    let kinds = Kinds::of([manifest]);

    let given = input::given(args, parent, manifest, &kinds, streams)?;
    let parent = parent::complete(given.parent, manifest, phase, now_ms);
    let observed = ObservedObjects::new(parent, given.others, &grants, &hash_key)?;
    let reads = reads::OfflineReads::new(&observed, manifest, &grants, &kinds, &hash_key);
    let request = Request {
        parent: &observed.parent.json,
        children: &observed.children,
        phase,
    };
    let context = plugin::Context {
        now_ms,
        seed: seed::of_pass(args.seed),
    };
    let called = guest.call(&request, reads, &context);
    let (report, reads) = called.map_err(|source| Error::LoadPlugin {
        path: args.plugin.clone(),
        source,
    })?;

    let limits = Limits::default();
    let rules = policy::Rules {
        manifest,
        grants: &grants,
        limits: &limits,
        resources: &kinds,
        host_namespace: HOST_NAMESPACE,
        parent: &observed.parent.id(),
        phase,
    };
    for line in &report.log {
        streams.note(&guest::log_line(line));
    }
    let CallReport { end, fuel, .. } = report;
    let said = outcome::checked(end, &rules);
    let text = match args.output {
        OutputFormat::Json => outcome::json(&said, reads.made(), fuel),
        OutputFormat::Yaml => yaml_output::children(&said, &observed, args.seed)?,
    };
    print(&said, &text, args.output, streams)
}

/// Returns the grants of the plugin; fails if they do not cover its requirements.
fn granted(
    args: &RenderArgs,
    manifest: &Manifest,
    streams: &mut Streams<'_>,
) -> Result<Grants, Error> {
    let grants = input::grants(args.grants.as_ref(), manifest, streams)?;
    let assessment = grants.assess(manifest);
    if assessment.serves() {
        return Ok(grants);
    }
    let missing: Vec<String> = assessment.missing.iter().map(ToString::to_string).collect();
    Err(Error::NotGranted {
        missing: missing.join(", "),
    })
}

fn print(
    said: &Said,
    text: &str,
    output: OutputFormat,
    streams: &mut Streams<'_>,
) -> Result<Exit, Error> {
    if let Some(fault) = &said.fault {
        streams.note(&format!("fault: {}: {}", fault.kind, fault.message));
    } else if output == OutputFormat::Yaml && said.outcome != Some("desired") {
        streams.note("the plugin leaves the children as they are");
    }
    streams.write(text.as_bytes()).map_err(Error::Write)?;
    Ok(match said.fault {
        Some(_) => Exit::Finding,
        None => Exit::Success,
    })
}

fn phase(args: &RenderArgs, manifest: &Manifest, streams: &mut Streams<'_>) -> Phase {
    let phase = match args.phase {
        RenderPhase::Reconcile => Phase::Reconcile,
        RenderPhase::Finalize => Phase::Finalize,
    };
    if phase == Phase::Finalize && !manifest.finalize {
        streams
            .note("the plugin requests no finalizer: a host never runs the finalize phase for it");
    }
    phase
}
