//! The program: parse, log, run, print the error chain.

use std::{env, process::ExitCode};

use innkeeper::{
    config::{self, Command, Streams},
    dev, inspect, manifests,
    plugin::artifact,
    render, run,
};

fn main() -> ExitCode {
    start().unwrap_or_else(|error| {
        Streams::of_process(|streams| streams.report(&*error));
        let run = error.downcast_ref().map(run::Error::exit_code);
        let dev = error.downcast_ref().map(dev::Error::exit_code);
        run.or(dev).map_or(ExitCode::FAILURE, ExitCode::from)
    })
}

fn start() -> anyhow::Result<ExitCode> {
    let started = config::read(env::args_os())
        .and_then(|config| Ok((config::start_log(&config.log)?, config.command)));
    let (log, command) = match started {
        Ok(started) => started,
        Err(error) => return Ok(config::explain(&error)),
    };
    let exit = match command {
        Command::Run(settings) => return Ok(run::run(settings, log).map(|()| ExitCode::SUCCESS)?),
        Command::Dev(settings) => return Ok(dev::run(settings).map(|()| ExitCode::SUCCESS)?),
        Command::Render(args) => {
            let now_ms = u64::try_from(jiff::Timestamp::now().as_millisecond())?;
            Streams::of_process(|streams| render::run(&args, now_ms, streams))
        }
        Command::Inspect(args) => Streams::of_process(|streams| inspect::run(&args, streams)),
        Command::Manifests(args) => Streams::of_process(|streams| manifests::run(&args, streams)),
        Command::Compile(args) => Streams::of_process(|streams| artifact::child(args, streams)),
    };
    Ok(exit.into())
}
