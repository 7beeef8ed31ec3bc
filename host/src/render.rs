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

use std::path::Path;

use innkeeper_model::{HashKey, Limits, Manifest, Phase};
use innkeeper_policy::{self as policy, Grants};
use innkeeper_sandbox::{self as plugin, CallReport, Request, Said};
use innkeeper_schema::Kinds;

use crate::{
    config::{Exit, HOST_NAMESPACE, OutputFormat, RenderArgs, RenderPhase, Streams},
    failure::Failure,
};
use observed::ObservedObjects;
use reads::OfflineReads;

/// The failure to encode the result.
const ENCODE: &str = "failed to encode the result";

/// The default hash key: fixed, so that the output is reproducible. It protects nothing, as there is no cluster.
const HASH_KEY: [u8; 32] = *b"innkeeper render: not a secret! ";

/// The guest's part of a pass, which tests replace.
type Call<'a> = dyn Fn(
        &Request<'_>,
        OfflineReads,
        &plugin::Context,
    ) -> Result<(CallReport, OfflineReads), plugin::Error>
    + 'a;

/// Runs one pass and prints its result; `now_ms` is the caller's clock, in milliseconds since the epoch.
///
/// Errors go to the standard error.
pub fn run(args: &RenderArgs, now_ms: u64, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    match (&args.recording, &args.parent) {
        (Some(recording), _) => replay::run(args, recording, streams),
        (None, Some(parent)) => from_files(args, parent, now_ms, streams),
        (None, None) => {
            let message = "nothing to render: set --parent FILE or --recording FILE";
            Err(Failure::new(Exit::Usage, message))
        }
    }
}

fn from_files(
    args: &RenderArgs,
    parent: &Path,
    now_ms: u64,
    streams: &mut Streams<'_>,
) -> Result<Exit, Failure> {
    let config = input::config(args.config.as_ref(), streams)?;
    let guest = guest::load(args, &config)?;
    let limits = Limits::default();
    let call: &Call<'_> = &|request, reads, context| guest.call(request, reads, context, &limits);
    pass(guest.manifest(), call, args, parent, now_ms, streams)
}

fn pass(
    manifest: &Manifest,
    call: &Call<'_>,
    args: &RenderArgs,
    parent: &Path,
    now_ms: u64,
    streams: &mut Streams<'_>,
) -> Result<Exit, Failure> {
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
    let reads = OfflineReads::new(&observed, manifest, &grants, &kinds, &hash_key);
    let request = Request {
        parent: &observed.parent.json,
        children: &observed.children,
        phase,
    };
    let context = plugin::Context {
        now_ms,
        seed: seed::of_pass(args.seed),
    };
    let (report, reads) = guest::started(call(&request, reads, &context), &args.plugin)?;

    let limits = Limits::default();
    let rules = policy::Rules {
        manifest,
        grants: &grants,
        limits: &limits,
        resources: &kinds,
        host_namespace: HOST_NAMESPACE,
        parent: &observed.parent.id(),
        depth: observed.parent.depth(),
        phase,
    };
    guest::note_log(&report, streams);
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
) -> Result<Grants, Failure> {
    let grants = input::grants(args.grants.as_ref(), manifest, streams)?;
    let assessment = grants.assess(manifest);
    if assessment.serves() {
        return Ok(grants);
    }
    let missing: Vec<String> = assessment.missing.iter().map(ToString::to_string).collect();
    let missing = missing.join(", ");
    let message = format!(
        "the plugin requires more than its grants allow: {missing}; grant it with --grants FILE"
    );
    Err(Failure::new(Exit::Usage, message))
}

fn print(
    said: &Said,
    text: &str,
    output: OutputFormat,
    streams: &mut Streams<'_>,
) -> Result<Exit, Failure> {
    guest::note_fault(said, streams);
    if said.fault.is_none() && output == OutputFormat::Yaml && said.outcome != Some("desired") {
        streams.note("the plugin leaves the children as they are");
    }
    streams.print(text)?;
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
