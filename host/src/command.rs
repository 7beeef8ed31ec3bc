//! What the command line asks for: reads it, starts the log, does it, and says how it ended.
//!
//! The only place that knows all commands; it knows nothing of what they do.

use std::{error::Error, ffi::OsString, io, process::ExitCode};

use innkeeper_sandbox::artifact::{self, ChildError};
use jiff::Timestamp;

use crate::{
    build,
    config::{self, Command, Exit, LogControl, Streams},
    dev, inspect, manifests, registry, render, run, survey,
};

/// Does what the arguments say, the first of which is the program.
pub fn start(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let config = match config::read(arguments) {
        Ok(config) => config,
        Err(error) => return config::explain(&error),
    };
    let log = match config::start_log(&config.log) {
        Ok(log) => log,
        Err(error) => return config::explain(&error),
    };
    match config.command {
        Command::Run(settings) => ended(run::run(settings, log), run::Error::exit_code),
        Command::Dev(settings) => ended(dev::run(settings), dev::Error::exit_code),
        Command::Compile(args) => {
            let compiled = artifact::child(args.into(), &mut io::stdin(), &mut io::stdout());
            ended(compiled, ChildError::exit_code)
        }
        other => Streams::of_process(|streams| once(other, log, streams)).into(),
    }
}

/// A command that does one thing and ends by itself.
fn once(command: Command, log: LogControl, streams: &mut Streams<'_>) -> Exit {
    // Only a host that runs has a log to be steered.
    drop(log);
    match command {
        Command::Render(args) => {
            let now_ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
            render::run(&args, now_ms, streams)
        }
        Command::Inspect(settings) => inspect::run(&settings, streams),
        Command::Manifests(settings) => manifests::run(&settings, streams),
        Command::Build(settings) => build::run(&settings, streams),
        Command::Push(settings) => registry::push(&settings, streams),
        Command::Pull(settings) => registry::pull(&settings, streams),
        Command::Sign(settings) => registry::sign(&settings, streams),
        Command::Status(settings) => survey::status(&settings, streams),
        // Started above.
        Command::Run(_) | Command::Dev(_) | Command::Compile(_) => Exit::BadUse,
    }
}

fn ended<E: Error + 'static>(result: Result<(), E>, code: impl Fn(&E) -> u8) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            Streams::of_process(|streams| streams.report(&error));
            code(&error).into()
        }
    }
}
