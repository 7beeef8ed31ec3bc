//! Reads the command line, starts the log, runs the command, and reports its result.

use std::{ffi::OsString, io, process::ExitCode};

use innkeeper_authoring::{build, inspect, manifests, new, recordings, registry, render, testing};
use innkeeper_command::{Exit, Failure, LogControl, Streams, start_log};
use innkeeper_sandbox::artifact;
use innkeeper_server::run;
use jiff::Timestamp;

use crate::{
    config::{self, Cli, Command, CompileArgs},
    dev, documents, fleet, record, status,
};

/// Runs a command; the first argument is the program.
pub fn start(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let parsed = config::read(arguments).and_then(|Cli { log, command }| {
        let log = start_log(&log, command.log_filter())?;
        Ok((command, log))
    });
    let (command, log) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return config::explain(&error).into(),
    };
    Streams::for_process(|streams| match command {
        // Not in `execute`, because the exit codes are a separate protocol.
        Command::Compile(args) => compile(&args, streams),
        other => {
            let result = execute(other, log, streams);
            streams.end(result).into()
        }
    })
}

fn execute(command: Command, log: LogControl, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => run::serve(*args, log).map(|()| Exit::Success),
        Command::Dev(args) => dev::run(&args).map(|()| Exit::Success),
        Command::Render(args) => {
            let now_ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
            render::run(&args, now_ms, streams)
        }
        Command::Inspect(args) => inspect::run(&args, streams),
        Command::Manifests(args) => manifests::run(&args, streams),
        Command::New(args) => new::run(&args, streams),
        Command::Build(args) => build::run(&args, streams),
        Command::Test(args) => testing::run(&args, streams),
        Command::Plan(args) => fleet::run(&args, streams),
        Command::Dump(args) => fleet::dump(&args, streams),
        Command::Record(args) => record::run(&args, streams),
        Command::Replay(args) => recordings::replay(&args, streams),
        Command::Push(args) => registry::push(&args, streams),
        Command::Pull(args) => registry::pull(&args, streams),
        Command::Sign(args) => registry::sign(&args, streams),
        Command::Verify(args) => registry::verify(&args, streams),
        Command::Status(args) => status::show(&args, streams),
        Command::Completions(args) => documents::completions(&args, streams),
        Command::Man(args) => documents::man(&args, streams),
        // Handled in `start`.
        Command::Compile(_) => Ok(Exit::Usage),
    }
}

/// Compiles one plugin, or checks one configuration. The exit codes are a protocol with the host.
fn compile(args: &CompileArgs, streams: &mut Streams<'_>) -> ExitCode {
    let mut note = |confinement: artifact::Confinement| streams.note(&confinement.to_string());
    match artifact::child(
        args.bounds(),
        args.task(),
        &mut io::stdin(),
        &mut io::stdout(),
        &mut note,
    ) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            streams.report(&error);
            error.exit_code().into()
        }
    }
}
