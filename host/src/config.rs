//! Settings of all commands, from the command line, the environment and configuration files.
//!
//! A command's `Args` are its settings with all defaults, and live in the command's crate.
//! clap parses each value and names the flag with a bad one; [`read`] then checks flags that depend on each other.
//! Nothing here acts on the settings.

mod compile;
mod dev;
mod documents;
mod plan;
mod record;
mod status;

use std::ffi::OsString;

use clap::Parser;
use innkeeper_authoring::{
    BuildArgs, InspectArgs, ManifestsArgs, NewArgs, PullArgs, PushArgs, RenderArgs, ReplayArgs,
    SignArgs, TestArgs, VerifyArgs,
};
use innkeeper_command::{Exit, Failure, LogArgs, Streams};
use innkeeper_server::RunArgs;

pub use compile::CompileArgs;
pub use dev::DevArgs;
pub use documents::{CompletionsArgs, ManArgs};
pub use plan::{DumpArgs, FleetArgs, PlanArgs, PlanFormat};
pub use record::RecordArgs;
pub use status::StatusArgs;

/// A failure to read the settings.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line is invalid, or requests help or the version; clap has the message.
    #[error("failed to parse the command line")]
    CommandLine(#[source] Box<clap::Error>),
    /// Flags contradict each other, or the log does not start.
    #[error(transparent)]
    Settings(#[from] Failure),
}

/// Runs Kubernetes reconcilers as WebAssembly plugins.
#[derive(Debug, Parser)]
#[command(
    name = "innkeeper",
    version,
    propagate_version = true,
    after_help = "`innkeeper COMMAND --help` lists all flags with units, defaults and limits, and the exit codes."
)]
pub struct Cli {
    /// The log.
    #[command(flatten)]
    pub log: LogArgs,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// A command with its settings.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Reconcile a cluster until stopped, with plugin files, the cluster's Plugin resources, or both.
    Run(Box<RunArgs>),
    /// Develop plugins: start or use a cluster, run plugins, apply examples, and show their state.
    Dev(DevArgs),
    /// Run one pass of a plugin offline and print the result.
    Render(RenderArgs),
    /// Describe a WebAssembly file: type, imports, and declared kinds.
    Inspect(InspectArgs),
    /// Print the objects that plugins need: CRDs, least-privilege roles, and Plugins with grants.
    Manifests(ManifestsArgs),
    /// Compile one plugin from standard input to standard output; `run` and `dev` start it themselves.
    #[command(hide = true)]
    Compile(CompileArgs),
    /// Create a plugin project, ready to build, test and run.
    New(NewArgs),
    /// Build plugins reproducibly from source, with an embedded description.
    Build(BuildArgs),
    /// Test a plugin offline: run its cases, and check reconciler properties with generated parents.
    Test(TestArgs),
    /// Show how a plugin would change a cluster's parents, before it becomes active; writes nothing.
    Plan(Box<PlanArgs>),
    /// Write everything that `plan` reads from a cluster to a file.
    Dump(Box<DumpArgs>),
    /// Record a running host's plugin calls to files.
    Record(RecordArgs),
    /// Repeat a recorded pass offline and print how the new answer differs.
    Replay(ReplayArgs),
    /// Push a plugin to a registry.
    Push(PushArgs),
    /// Pull a plugin from a registry to a file.
    Pull(PullArgs),
    /// Sign a plugin in a registry, compatible with cosign.
    ///
    /// A reference with a manifest digest may name any artifact, such as an image or a chart. Without --digest, the command
    /// does not fetch the content.
    Sign(SignArgs),
    /// Verify a plugin's signature in a registry.
    Verify(VerifyArgs),
    /// Show the conditions of Plugins and of the parents that are not Ready.
    Status(StatusArgs),
    /// Print shell completions.
    Completions(CompletionsArgs),
    /// Write man pages for all commands to a directory.
    Man(ManArgs),
}

impl Command {
    /// The default log filter.
    pub const fn log_filter(&self) -> &'static str {
        // Errors of kube's client appear in the errors of its callers.
        match self {
            // The output shows progress. `dev` installs the CRD that the controller misses at first, and a plugin author
            // wants to see what the plugin logs.
            Self::Dev(_) => {
                "warn,guest=info,innkeeper_plugin_controller::definition=error,kube_client=off"
            }
            Self::Plan(_) | Self::Dump(_) => "warn,kube_client=off",
            _ => "info,kube_client=off",
        }
    }

    /// Checks the flags that depend on each other.
    fn check(&self) -> Result<(), Failure> {
        match self {
            Self::Run(args) => args.check(),
            Self::Dev(args) => args.check(),
            Self::Manifests(args) => args.check(),
            Self::Record(args) => args.check(),
            _ => Ok(()),
        }
    }
}

/// Reads the command line, the environment, and the files that they name.
pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, Error> {
    let cli =
        Cli::try_parse_from(arguments).map_err(|error| Error::CommandLine(Box::new(error)))?;
    cli.command.check()?;
    Ok(cli)
}

/// Reports an unusable command line, or prints the requested help or version; returns the exit code.
pub fn explain(error: &Error) -> Exit {
    let Error::CommandLine(usage) = error else {
        Streams::for_process(|streams| streams.report(error));
        return Exit::Usage;
    };
    // clap treats help and version as errors too, and knows their streams.
    let printed = usage.print();
    if usage.use_stderr() || printed.is_err() {
        Exit::Usage
    } else {
        Exit::Success
    }
}

#[cfg(test)]
mod tests;
