//! The settings of all commands: the only reader of flags, configuration files and the environment.
//!
//! The `Args` of a command are its settings, with every default filled in.
//! clap parses each value into its type and names the flag of a bad value; [`read`] then checks the flags that depend on
//! each other. So nothing starts with unusable settings.
//! Nothing here acts on the settings, except for the log, which must exist before everything else.

mod admin;
mod build;
mod cluster;
mod compile;
mod dev;
mod inspect;
mod lease;
mod log;
mod manifests;
mod plugins;
mod registry;
mod render;
mod run;
mod scope;
mod sources;
mod streams;
mod survey;
mod values;

use std::ffi::OsString;

use clap::Parser;

pub use admin::AdminArgs;
pub use build::BuildArgs;
pub use cluster::{ClusterArgs, ConnectionArgs, HOST_NAMESPACE, client_config};
pub use compile::CompileArgs;
pub use dev::DevArgs;
pub use inspect::{InspectArgs, Inspected};
pub use lease::{LeaseArgs, lease_name};
pub use log::{LogArgs, LogControl, LogFormat, start_log};
pub use manifests::{ManifestsArgs, PluginAccount, ResourceArgs};
pub use plugins::{PluginArgs, PluginObject, by_plugin};
pub use registry::{
    FetchArgs, PullArgs, PushArgs, RegistryArgs, ResultFormat, SignArgs, VerifyArgs,
};
pub use render::{OutputFormat, RenderArgs, RenderPhase};
pub use run::RunArgs;
pub use scope::{Definitions, Namespaces, ScopeArgs};
pub use sources::SourceArgs;
pub use streams::{Exit, Streams};
pub use survey::StatusArgs;

/// A failure to read the settings.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line is invalid, or asks for help or the version; clap has the message.
    #[error("failed to parse the command line")]
    CommandLine(#[source] Box<clap::Error>),
    /// A plugin is given two values by one flag.
    #[error("{flag} names plugin {plugin} twice, with {first} and {second}: give one of them")]
    PluginTwice {
        /// The flag.
        flag: &'static str,
        /// The plugin's name.
        plugin: String,
        /// The first value: a file or an account.
        first: String,
        /// The second value.
        second: String,
    },
    /// The grants of several plugins are requested as one file.
    #[error("--print-grants prints the file of one plugin: give one --plugin")]
    GrantsOfSeveral,
    /// The log was already started.
    #[error("failed to start the log")]
    StartLog(#[source] tracing_subscriber::util::TryInitError),
    /// The times of the lease do not leave the holder the time to stop before another host takes over.
    #[error(
        "--lease-duration {duration_s} must be more than --lease-renew-deadline {renew_deadline_s}, and four fifths of that more than --lease-retry {retry_s}"
    )]
    LeaseTimes {
        /// The value of `--lease-duration`, in seconds.
        duration_s: u64,
        /// The value of `--lease-renew-deadline`, in seconds.
        renew_deadline_s: u64,
        /// The value of `--lease-retry`, in seconds.
        retry_s: u64,
    },
    /// A flag for Plugin resources is given to a host that does not serve them.
    #[error(
        "{0} is for Plugin resources, which are not served beside plugin files: add --plugin-resources, or omit --plugin and --plugin-dir"
    )]
    WithoutResources(&'static str),
    /// The kubeconfig does not have the context.
    #[error(
        "the kubeconfig {from} has {}: give --context {}",
        match asked { Some(asked) => format!("no context \"{asked}\""), None => "no current context".to_owned() },
        if known.is_empty() { "and another --kubeconfig, because it has no contexts".to_owned() } else { known.join(" or --context ") }
    )]
    Context {
        /// The source of the kubeconfig.
        from: String,
        /// The requested context; none: the current one, which is not set.
        asked: Option<String>,
        /// The contexts of the kubeconfig.
        known: Vec<String>,
    },
    /// The kubeconfig does not parse. The parser's message is omitted: it quotes the text, which has credentials.
    #[error(
        "failed to parse the kubeconfig {from} at {at}: repair it, or give another by --kubeconfig or KUBECONFIG"
    )]
    KubeconfigSyntax {
        /// The source of the kubeconfig.
        from: String,
        /// The position.
        at: String,
    },
    /// The kubeconfig cannot be used.
    #[error(
        "failed to use the kubeconfig {from}: repair it, or give another by --kubeconfig or KUBECONFIG"
    )]
    Kubeconfig {
        /// The source of the kubeconfig.
        from: String,
        #[source]
        #[expect(missing_docs, reason = "the source")]
        source: Box<kube::config::KubeconfigError>,
    },
    /// There is no kubeconfig, and the host does not run in a cluster.
    #[error(
        "found no cluster: give --kubeconfig FILE, set KUBECONFIG, or run in a Pod with a service account"
    )]
    NoCluster(#[source] kube::config::InClusterError),
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
#[expect(
    clippy::large_enum_variant,
    reason = "there is one value per process, and clap knows no boxes"
)]
pub enum Command {
    /// Reconcile a cluster until stopped: with the given plugin files, or with the cluster's Plugin resources, or both.
    Run(RunArgs),
    /// Develop plugins: start a local cluster or use one, run plugins, apply examples, show their state.
    Dev(DevArgs),
    /// Run one pass of a plugin offline and print the result; needs no cluster.
    Render(RenderArgs),
    /// Describe a WebAssembly file: its type, its imports, and the kinds that it declares.
    Inspect(InspectArgs),
    /// Print the objects that a cluster needs to run plugins: CRDs, least-privilege roles and a Deployment of the host.
    Manifests(ManifestsArgs),
    /// Compile one plugin from standard input to standard output; `run` and `dev` start it themselves.
    #[command(hide = true)]
    Compile(CompileArgs),
    /// Build plugins from source with an embedded description; the same source gives the same digest.
    Build(BuildArgs),
    /// Push a plugin to a registry.
    Push(PushArgs),
    /// Pull a plugin from a registry to a file.
    Pull(PullArgs),
    /// Sign a plugin in a registry, compatible with cosign.
    Sign(SignArgs),
    /// Verify the signature of a plugin in a registry.
    Verify(VerifyArgs),
    /// Show the state of plugins and parents: the active revisions, the parents that are not Ready, the last faults.
    Status(StatusArgs),
}

impl Command {
    /// The default filter of the log.
    pub const fn log_filter(&self) -> &'static str {
        // The errors of the client are part of the errors of the request's user.
        match self {
            // Its table shows the progress.
            Self::Dev(_) => "warn,kube_client=off",
            _ => "info,kube_client=off",
        }
    }

    /// Checks the flags that depend on each other.
    fn check(&self) -> Result<(), Error> {
        match self {
            Self::Run(args) => args.check(),
            Self::Dev(args) => args.check(),
            Self::Manifests(args) => args.check(),
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
        Streams::of_process(|streams| streams.report(error));
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
