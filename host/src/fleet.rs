//! The commands `plan` and `dump`: a plugin's effects on a cluster's live parents.
//!
//! A plan is the host's dry run of a candidate for every parent, with the name, the terms and the hash key that the host
//! uses in the cluster. It only reads. A dump has the API server's responses to these reads.

mod differences;
mod dump;
mod live;
mod show;
#[cfg(test)]
mod tests;

use std::{num::NonZeroU32, thread};

use innkeeper_authoring::{Inspected, plugin_file, render};
use innkeeper_command::{Exit, Failure, OrFail as _, Output, Streams, runtime, stdout_has_colours};
use innkeeper_plugin_controller::Forecast;
use innkeeper_sandbox::{Described, Engine, EngineSettings};

use crate::config::{DumpArgs, FleetArgs, PlanArgs};
use dump::Dump;
use live::Inputs;

/// Returns a plan's exit code.
fn exit(forecast: &Forecast) -> Exit {
    if forecast.deletes.is_empty() && forecast.faults == 0 {
        Exit::Success
    } else {
        Exit::Finding
    }
}

/// Plans a plugin for the live parents and prints the result.
pub fn run(args: &PlanArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    // Reads all files first, because compiling takes seconds.
    let dump = args.from.as_deref().map(Dump::read).transpose()?;
    let inputs = inputs(&args.fleet, args.against.as_ref(), streams)?;
    let work = live::plan(&args.fleet, &args.parents, dump, inputs);
    let (plan, notes) = runtime::block_on_all_threads(Box::pin(work))?;
    for name in &args.parents {
        if !plan.parents().keys().any(|parent| name.matches(parent)) {
            let message = format!(
                "plugin {} has no parent {name}: give --parent NAMESPACE/NAME of a live parent",
                plan.plugin
            );
            return Err(Failure::new(Exit::Usage, message));
        }
    }
    for note in &notes {
        streams.note(note);
    }
    let has_colours = stdout_has_colours();
    streams.print(&show::all(&plan, args.output, has_colours)?)?;
    Ok(exit(&plan.forecast))
}

/// Writes everything that a plan reads to a file.
pub fn dump(args: &DumpArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    let to = args.to.display();
    // Before the plan: writing would fail only after it.
    if args.to.exists() {
        let message = format!("{to} exists: give --to a file that does not exist");
        return Err(Failure::new(Exit::Usage, message));
    }
    let inputs = inputs(&args.fleet, None, streams)?;
    let work = live::dump(&args.fleet, inputs, &args.to);
    let parents = runtime::block_on_all_threads(Box::pin(work))?;
    streams.note(&format!(
        "the dump has {parents} parents and the host's hash key: protect it like a Secret"
    ));
    streams.print(&Output::from_line(to.to_string()))?;
    Ok(Exit::Success)
}

fn inputs(
    args: &FleetArgs,
    against: Option<&Inspected>,
    streams: &mut Streams<'_>,
) -> Result<Inputs, Failure> {
    let Some(plugin) = args.plugin.as_ref().or(args.plugin_file.as_ref()) else {
        return Err(Failure::new(Exit::Usage, "no candidate: give PLUGIN"));
    };
    let config = args
        .config
        .as_deref()
        .map(|path| render::one_object(Some(path), streams))
        .transpose()?;
    let grants = render::grants_in(args.grants.as_deref(), streams)?;
    let threads = thread::available_parallelism()
        .or_fail(Exit::Failure, "failed to read the number of processors")?;
    let workers = NonZeroU32::try_from(threads).unwrap_or(NonZeroU32::MIN);
    let engine = Engine::new(&EngineSettings::new(workers))
        .or_fail_by(plugin_file::exit_for, "failed to set up the sandbox")?;
    Ok(Inputs {
        candidate: describe(&engine, plugin, args)?,
        against: against
            .map(|from| describe(&engine, from, args))
            .transpose()?,
        config,
        grants,
        threads,
    })
}

fn describe(engine: &Engine, from: &Inspected, args: &FleetArgs) -> Result<Described, Failure> {
    let bytes = plugin_file::bytes(from, &args.load.registry)?;
    let cache = args.load.cache.open()?;
    plugin_file::describe_in(engine, &bytes, cache.as_ref()).or_fail_by(
        plugin_file::Error::exit,
        format!("failed to load the plugin {from}"),
    )
}
