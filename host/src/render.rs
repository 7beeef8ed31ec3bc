//! One pass offline: `innkeeper render`.
//!
//! Uses the code that the host uses for the call, the check and the objects to be sent, so that what it prints is what
//! the host would apply.
//! It knows no cluster: every kind counts as served, and what exists is what it is given.
//!
//! An observed object is the parent's child if its controller is the parent (by UID where the parent's file gives one,
//! by kind and name where it does not), or if it has no controller and is retained for the parent.
//! All observed objects, the parent and the children included, answer the plugin's reads.
//!
//! A parent of a file lacks what an API server gives it: the namespace `default`, a fixed UID, `generation: 1`, and the
//! time of the pass as `creationTimestamp`, and as `deletionTimestamp` in phase finalize.

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
use innkeeper_policy as policy;
use innkeeper_sandbox::{self as plugin, CallReport, Request};
use innkeeper_schema::{self as schema, Kinds};

use crate::config::{Exit, OutputFormat, RenderArgs, RenderPhase, Streams};
use guest::Guest;

/// Without a cluster there is no key to keep, but hashes have to be the same every time.
const HASH_KEY: [u8; 32] = *b"innkeeper render: not a secret! ";

/// Why nothing is rendered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, or the standard input, cannot be read.
    #[error("failed to read {from}")]
    Read {
        /// Where from.
        from: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is neither YAML nor JSON.
    #[error("failed to understand {from}")]
    Parse {
        /// Where from.
        from: String,
        /// Why.
        #[source]
        source: innkeeper_model::yaml::Error,
    },
    /// A document is not an object of Kubernetes.
    #[error("document {number} of {from} is not an object: {problem}")]
    NoObject {
        /// Where from.
        from: String,
        /// Counted from 1.
        number: usize,
        /// What is missing or wrong.
        problem: String,
    },
    /// There is nothing to ask the plugin for.
    #[error("nothing to render: give --parent FILE, or --recording FILE")]
    Nothing,
    /// It is no recording of a pass.
    #[error(
        "{from} is no recording of a pass: give one JSON object as a host logs it at the target recording"
    )]
    Recording {
        /// Where from.
        from: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// There is not exactly one parent.
    #[error(
        "{from} holds {found} parents of the plugin, which are of kind {kinds}: give exactly one"
    )]
    Parents {
        /// Where from.
        from: String,
        /// How many.
        found: usize,
        /// The kinds of parents, in words.
        kinds: String,
    },
    /// The plugin does not speak the parent's version.
    #[error("the parent is {is}, and the plugin speaks {speaks}: write it in that version")]
    ParentVersion {
        /// The version in the file.
        is: String,
        /// The version of the plugin.
        speaks: String,
    },
    /// The configuration or the grants are not one object.
    #[error("{from} must hold exactly one object")]
    Shape {
        /// Where from.
        from: String,
    },
    /// The grants cannot be understood.
    #[error("failed to take the grants of {from}")]
    Grants {
        /// Where from.
        from: String,
        /// Why.
        #[source]
        source: plugins::resource::Error,
    },
    /// There is nothing to hash with.
    #[error(
        "{from} is empty: it must hold the cluster's hash key, the bytes of the Secret innkeeper-hash-key"
    )]
    NoHashKey {
        /// Where from.
        from: String,
    },
    /// Compiled plugins cannot be kept.
    #[error("failed to open the cache of compiled plugins; give another --cache-dir")]
    Cache(#[source] plugin::artifact::Error),
    /// The plugin's file cannot be used.
    #[error("failed to load the plugin {}", path.display())]
    LoadArtifact {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: plugin::artifact::Error,
    },
    /// The plugin cannot be used.
    #[error("failed to start the plugin {}", path.display())]
    LoadPlugin {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: plugin::Error,
    },
    /// The plugin may not have what it cannot do without.
    #[error(
        "the plugin asks for what it is not granted: {missing}; give --grants FILE to grant it"
    )]
    NotGranted {
        /// What is missing.
        missing: String,
    },
    /// The plugin brings a broken CustomResourceDefinition.
    #[error("the plugin brings a CustomResourceDefinition that cannot be used")]
    Schema(#[source] schema::Error),
    /// An object breaks its schema or a rule.
    #[error(transparent)]
    Rejected(schema::Rejection),
    /// An object cannot be shown to the guest.
    #[error("failed to take over {object}")]
    Present {
        /// Which.
        object: String,
        /// Why.
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
            Self::Rejected(_) => Exit::Rejected,
            Self::Schema(_)
            | Self::LoadPlugin {
                source: plugin::Error::Describe { .. } | plugin::Error::Manifest { .. },
                ..
            } => Exit::GuestFault,
            _ => Exit::BadUse,
        }
    }
}

/// Runs one pass and prints what it would do; `now_ms` is the caller's clock, in milliseconds since the epoch.
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
    guest: &impl Guest,
    args: &RenderArgs,
    parent: &Path,
    now_ms: u64,
    streams: &mut Streams<'_>,
) -> Result<Exit, Error> {
    let manifest = guest.manifest();
    let grants = input::grants(args.grants.as_ref(), manifest, streams)?;
    let assessment = grants.assess(manifest);
    if !assessment.serves() {
        let missing: Vec<String> = assessment.missing.iter().map(ToString::to_string).collect();
        return Err(Error::NotGranted {
            missing: missing.join(", "),
        });
    }
    let now_ms = args.now.map_or(now_ms, |now| {
        u64::try_from(now.as_millisecond()).unwrap_or_default()
    });
    let phase = phase(args, manifest, streams);
    let hash_key = match &args.hash_key {
        Some(path) => input::hash_key(path, streams)?,
        None => HashKey::new(HASH_KEY),
    };
    let kinds = Kinds::of([manifest]);

    let world = input::world(args, parent, manifest, &kinds, streams)?;
    let parent = parent::complete(world.parent, manifest, phase, now_ms);
    let scene = observed::Scene::new(parent, world.others, &grants, &hash_key)?;
    let reads = reads::OfflineReads::new(&scene, manifest, &grants, &kinds, &hash_key);
    let request = Request {
        parent: &scene.parent.json,
        children: &scene.children,
        phase,
    };
    let context = plugin::Context {
        now_ms,
        seed: seed::of_pass(args.seed),
    };
    let (report, reads) =
        guest
            .call(&request, reads, &context)
            .map_err(|source| Error::LoadPlugin {
                path: args.plugin.clone(),
                source,
            })?;

    let limits = Limits::default();
    let rules = policy::Rules {
        manifest,
        grants: &grants,
        limits: &limits,
        resources: &kinds,
        parent: &scene.parent.id(),
        phase,
    };
    for line in &report.log {
        streams.note(&guest::log_line(line));
    }
    let CallReport { end, fuel, .. } = report;
    let said = outcome::checked(end, &rules);
    if let Some(fault) = &said.fault {
        streams.note(&format!("fault: {}: {}", fault.kind, fault.message));
    }
    let text = match args.output {
        OutputFormat::Json => outcome::json(&said, reads.made(), fuel),
        OutputFormat::Yaml => {
            if said.fault.is_none() && said.outcome != Some("desired") {
                streams.note("the plugin leaves the children as they are");
            }
            yaml_output::children(&said, &scene, args.seed)?
        }
    };
    streams.write(text.as_bytes()).map_err(Error::Write)?;
    Ok(match said.fault {
        Some(_) => Exit::GuestFault,
        None => Exit::Success,
    })
}

fn phase(args: &RenderArgs, manifest: &Manifest, streams: &mut Streams<'_>) -> Phase {
    let phase = match args.phase {
        RenderPhase::Reconcile => Phase::Reconcile,
        RenderPhase::Finalize => Phase::Finalize,
    };
    if phase == Phase::Finalize && !manifest.finalize {
        streams.note("the plugin asks for no finalizer: no host runs this phase with it");
    }
    phase
}
