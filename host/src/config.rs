//! The settings of all commands, as the command line, the environment and configuration files give them.
//!
//! The `Args` of a command are its settings, with every default filled in; the crate of a command has them.
//! clap parses each value into its type and names the flag of a bad value; [`read`] then checks the flags that depend on
//! each other. So nothing starts with unusable settings.
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
    /// The command line is invalid, or asks for help or the version; clap has the message.
    #[error("failed to parse the command line")]
    CommandLine(#[source] Box<clap::Error>),
    /// The settings do not fit together, or the log does not start.
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
    /// Reconcile a cluster until stopped: with the given plugin files, or with the cluster's Plugin resources, or both.
    Run(Box<RunArgs>),
    /// Develop plugins: start a local cluster or use one, run plugins, apply examples, show their state.
    Dev(DevArgs),
    /// Run one pass of a plugin offline and print the result; needs no cluster.
    Render(RenderArgs),
    /// Describe a WebAssembly file: its type, its imports, and the kinds that it declares.
    Inspect(InspectArgs),
    /// Print the objects that a cluster needs to run plugins: CRDs, least-privilege roles, and Plugins with their grants.
    Manifests(ManifestsArgs),
    /// Compile one plugin from standard input to standard output; `run` and `dev` start it themselves.
    #[command(hide = true)]
    Compile(CompileArgs),
    /// Create a plugin project that builds, tests and runs at once.
    New(NewArgs),
    /// Build plugins from source with an embedded description; the same source gives the same digest.
    Build(BuildArgs),
    /// Test a plugin offline: its cases, and the properties of a good reconciler over generated parents.
    Test(TestArgs),
    /// Show the effects of a plugin on the live parents of a cluster before it replaces the active revision; writes nothing.
    Plan(Box<PlanArgs>),
    /// Write all that `plan` reads from a cluster for a plugin to a file.
    Dump(Box<DumpArgs>),
    /// Record calls of a running host to files.
    Record(RecordArgs),
    /// Repeat a recorded pass offline and print the difference between the recorded and the new answer.
    Replay(ReplayArgs),
    /// Push a plugin to a registry.
    Push(PushArgs),
    /// Pull a plugin from a registry to a file.
    Pull(PullArgs),
    /// Sign a plugin in a registry, compatible with cosign.
    ///
    /// A reference with the digest of a manifest may name any artifact, such as an image or a chart. Without --digest, its
    /// content is not fetched.
    Sign(SignArgs),
    /// Verify the signature of a plugin in a registry.
    Verify(VerifyArgs),
    /// Show the conditions of Plugins and of the parents that are not Ready.
    Status(StatusArgs),
    /// Print the completions of a shell.
    Completions(CompletionsArgs),
    /// Write the man pages of all commands to a directory.
    Man(ManArgs),
}

impl Command {
    /// The default filter of the log.
    pub const fn log_filter(&self) -> &'static str {
        // The errors of the client are part of the errors of the request's user.
        match self {
            // Their output shows the progress. `dev` installs the definition that the controller waits for, and its user
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

/// Reads the command line, the environment, and the configuration files that they name.
pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, Error> {
    let parsed = Cli::try_parse_from(arguments);
    let cli = parsed.map_err(|error| Error::CommandLine(Box::new(error)))?;
    cli.command.check()?;
    Ok(cli)
}

/// Reports an unusable command line, or prints the requested help or version; returns the end of the process.
pub fn explain(error: &Error) -> Exit {
    let Error::CommandLine(usage) = error else {
        Streams::for_process(|streams| streams.report(error));
        return Exit::Usage;
    };
    // Help and version are errors of clap as well, and clap knows their streams.
    let printed = usage.print();
    if usage.use_stderr() || printed.is_err() {
        Exit::Usage
    } else {
        Exit::Success
    }
}

#[cfg(test)]
mod tests;
