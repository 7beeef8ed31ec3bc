//! What the host was told: the only reader of flags, files of configuration and the environment.
//!
//! Flags are parsed into one `Args` per command and converted once into plain structs with every limit filled in;
//! from there on nothing is optional that has a default.
//! Nothing here acts on what it read, but for the log, which has to stand before anything else.

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

use std::{ffi::OsString, io, path::PathBuf};

use clap::Parser;
use innkeeper_model::InvalidSelector;

pub use admin::AdminSettings;
pub use build::BuildSettings;
pub use cluster::{ClusterSettings, Connection, client_config};
pub use compile::CompileArgs;
pub use dev::{DevCluster, DevSettings};
pub use inspect::{InspectFormat, InspectSettings, Inspected};
pub use lease::{LeaseSettings, lease_name};
pub use log::{LogControl, LogFormat, LogSettings, start_log};
pub use manifests::{Account, ManifestsSettings, ResourceRoles};
pub use plugins::{PluginFile, PluginFileKind, PluginSettings};
pub use registry::{KeptAs, KeyText, PullSettings, PushSettings, ResultFormat, SignSettings};
pub use render::{OutputFormat, RenderArgs, RenderPhase};
pub use run::RunSettings;
pub use scope::{Definitions, ScopeSettings};
pub use sources::SourceSettings;
pub use streams::{Exit, Streams};
pub use survey::{Asked, StatusSettings, SurveyFormat};

/// Why the host does not know what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line is wrong; the message is clap's, help and version come the same way.
    #[error("failed to understand the command line")]
    CommandLine(#[source] Box<clap::Error>),
    /// A directory of plugins cannot be read.
    #[error("failed to read the plugin directory {}", path.display())]
    ReadPluginDir {
        /// The directory.
        path: PathBuf,
        #[source]
        #[expect(missing_docs, reason = "the source")]
        source: io::Error,
    },
    /// A directory of plugins holds none.
    #[error("found no file that ends in .wasm in the plugin directory {}", path.display())]
    EmptyPluginDir {
        /// The directory.
        path: PathBuf,
    },
    /// A file that belongs to a plugin cannot be read.
    #[error("failed to read {}, the {what} of plugin {plugin}", path.display())]
    ReadPluginFile {
        /// What the file holds.
        what: PluginFileKind,
        /// The plugin's name.
        plugin: String,
        /// The file.
        path: PathBuf,
        #[source]
        #[expect(missing_docs, reason = "the source")]
        source: io::Error,
    },
    /// A file that belongs to a plugin is neither YAML nor JSON.
    #[error("failed to parse {}, the {what} of plugin {plugin}", path.display())]
    ParsePluginFile {
        /// What the file holds.
        what: PluginFileKind,
        /// The plugin's name.
        plugin: String,
        /// The file.
        path: PathBuf,
        #[source]
        #[expect(missing_docs, reason = "the source")]
        source: innkeeper_model::yaml::Error,
    },
    /// A file that belongs to a plugin is not one object.
    #[error("{}, the {what} of plugin {plugin}, must hold exactly one object", path.display())]
    PluginFileShape {
        /// What the file holds.
        what: PluginFileKind,
        /// The plugin's name.
        plugin: String,
        /// The file.
        path: PathBuf,
    },
    /// A plugin is given two files of one kind.
    #[error("plugin {plugin} is given two files of its {what}: give one")]
    PluginFileTwice {
        /// What the files hold.
        what: PluginFileKind,
        /// The plugin's name.
        plugin: String,
    },
    /// A file that is given cannot be read.
    #[error("failed to read {}, {what}", path.display())]
    ReadGiven {
        /// What the file holds.
        what: &'static str,
        /// The file.
        path: PathBuf,
        #[source]
        #[expect(missing_docs, reason = "the source")]
        source: io::Error,
    },
    /// There is no directory for compiled plugins.
    #[error("found no directory for compiled plugins: give --cache-dir DIR, or set HOME")]
    NoCacheDir,
    /// The filter of the log does not parse.
    #[error("failed to understand the log filter \"{filter}\": write it as info,innkeeper=debug")]
    LogFilter {
        /// The filter as given.
        filter: String,
        #[source]
        #[expect(missing_docs, reason = "the source")]
        source: tracing_subscriber::filter::ParseError,
    },
    /// The log was already started.
    #[error("failed to start the log")]
    StartLog(#[source] tracing_subscriber::util::TryInitError),
    /// A file of authorities holds none.
    #[error("found no certificate in {}: give the authorities as PEM", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// `--source-mirror` does not parse.
    #[error(
        "\"{0}\" of --source-mirror is not REGISTRY=MIRROR: write it as ghcr.io=mirror.example, or ghcr.io=mirror.example/ghcr"
    )]
    SourceMirror(
        /// The text as given.
        String,
    ),
    /// The times of the lease do not leave the holder time to stop before others take over.
    #[error(
        "--lease-duration {duration_s} must be more than --lease-renew-deadline {renew_deadline_s}, and four fifths of that more than --lease-retry {retry_s}"
    )]
    LeaseTimes {
        /// Until others take over, in seconds.
        duration_s: u32,
        /// Until the holder gives up, in seconds.
        renew_deadline_s: u32,
        /// Between two renewals, in seconds.
        retry_s: u32,
    },
    /// `--namespaces` names none.
    #[error(
        "--namespaces names no namespace: name one or more, as in --namespaces a,b, or leave it out to see all"
    )]
    NoNamespace,
    /// `--namespaces` names what no namespace can be called.
    #[error(
        "\"{0}\" of --namespaces is not the name of a namespace: use at most 63 lower-case letters, digits and dashes, starting and ending with a letter or digit, and a comma between two names"
    )]
    NamespaceName(
        /// The text as given.
        String,
    ),
    /// `--namespaces` names one twice.
    #[error("--namespaces names {0} twice: name each namespace once")]
    NamespaceTwice(
        /// The name.
        String,
    ),
    /// A flag for Plugin resources is given to a host that does not serve them.
    #[error(
        "{0} is for Plugin resources, which are not served beside plugin files: add --plugin-resources, or leave out --plugin and --plugin-dir"
    )]
    WithoutResources(&'static str),
    /// `--plugin-selector` does not parse.
    #[error("failed to understand --plugin-selector")]
    PluginSelector(#[source] InvalidSelector),
    /// `--plugin-selector` selects everything.
    #[error("--plugin-selector is empty: leave it out to serve all Plugins")]
    EmptyPluginSelector,
    /// The kubeconfig does not have the context.
    #[error(
        "the kubeconfig {from} has {}: give --context {}",
        match asked { Some(asked) => format!("no context \"{asked}\""), None => "no current context".to_owned() },
        if known.is_empty() { "and another --kubeconfig, as it has no context at all".to_owned() } else { known.join(" or --context ") }
    )]
    Context {
        /// Where it was read from.
        from: String,
        /// The context asked for; none: the current one, and there is none.
        asked: Option<String>,
        /// The contexts that it has.
        known: Vec<String>,
    },
    /// The kubeconfig does not parse. What the parser says of it is not told: it quotes the text, which holds credentials.
    #[error(
        "the kubeconfig {from} is not the YAML of a kubeconfig at {at}: mend it, or give another by --kubeconfig or KUBECONFIG"
    )]
    KubeconfigSyntax {
        /// Where it was read from.
        from: String,
        /// The place.
        at: String,
    },
    /// The kubeconfig cannot be used.
    #[error(
        "failed to use the kubeconfig {from}: mend it, or give another by --kubeconfig or KUBECONFIG"
    )]
    Kubeconfig {
        /// Where it was read from.
        from: String,
        #[source]
        #[expect(missing_docs, reason = "the source")]
        source: Box<kube::config::KubeconfigError>,
    },
    /// There is no kubeconfig, and the host does not run in a cluster.
    #[error(
        "found no cluster: give --kubeconfig FILE, set KUBECONFIG, or run inside of a cluster with a service account"
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
struct Cli {
    #[command(flatten)]
    log: log::LogArgs,
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, clap::Subcommand)]
enum CliCommand {
    /// Reconcile a cluster with the given plugins until stopped; without any, or with --plugin-resources, with what its
    /// Plugin resources declare.
    Run(run::RunArgs),
    /// Try plugins out: start a local cluster or use one, run the plugins, apply examples, show what becomes of them.
    Dev(dev::DevArgs),
    /// Run one pass of a plugin offline and print what it would do; needs no cluster.
    Render(RenderArgs),
    /// Say what a WebAssembly file is, what it imports, and which kinds it wants, makes and reads.
    Inspect(inspect::InspectArgs),
    /// Print what a cluster needs to run the given plugins: CRDs, least-privilege roles and a Deployment of the host.
    Manifests(manifests::ManifestsArgs),
    /// Compile one plugin from standard input to standard output; `run` and `dev` start this for themselves.
    #[command(hide = true)]
    Compile(CompileArgs),
    /// Build plugins from their source, each with its description in it: the same source gives the same digest.
    Build(build::BuildArgs),
    /// Push a plugin to a registry.
    Push(registry::PushArgs),
    /// Fetch a plugin from a registry into a file.
    Pull(registry::PullArgs),
    /// Sign a plugin in a registry, as cosign does.
    Sign(registry::SignArgs),
    /// Check who signed a plugin in a registry.
    Verify(registry::VerifyArgs),
    /// Show how plugins and parents are: what serves, what is not Ready and why, the last faults.
    Status(survey::StatusArgs),
}

/// What the host was asked to do.
#[derive(Debug)]
pub struct Config {
    /// How to log.
    pub log: LogSettings,
    /// The command.
    pub command: Command,
}

/// A command with everything that it needs to know.
#[derive(Debug)]
pub enum Command {
    /// Reconcile until stopped.
    Run(RunSettings),
    /// The same, with a cluster of its own and a table.
    Dev(DevSettings),
    /// One pass offline.
    Render(RenderArgs),
    /// What a file is.
    Inspect(InspectSettings),
    /// What a cluster needs.
    Manifests(ManifestsSettings),
    /// One plugin from standard input to standard output.
    Compile(CompileArgs),
    /// Make components of crates.
    Build(BuildSettings),
    /// Put a plugin into a registry.
    Push(PushSettings),
    /// Get a plugin out of a registry, or only look at it.
    Pull(PullSettings),
    /// Sign a plugin in a registry.
    Sign(SignSettings),
    /// How plugins and parents are.
    Status(StatusSettings),
}

/// Reads the command line, and from the environment and the files what it names.
pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Config, Error> {
    let Cli { log, command } =
        Cli::try_parse_from(arguments).map_err(|error| Error::CommandLine(Box::new(error)))?;
    let log_default = match &command {
        // Its table is for people, and says what matters.
        CliCommand::Dev(_) => "warn,kube_client=off",
        // What the client fails with is told with what it was needed for.
        _ => "info,kube_client=off",
    };
    Ok(Config {
        log: log.into_settings(log_default),
        command: match command {
            CliCommand::Run(args) => Command::Run(args.into_settings()?),
            CliCommand::Dev(args) => Command::Dev(args.into_settings()?),
            CliCommand::Render(args) => Command::Render(args),
            CliCommand::Inspect(args) => Command::Inspect(args.into_settings()?),
            CliCommand::Manifests(args) => Command::Manifests(args.into_settings()?),
            CliCommand::Compile(args) => Command::Compile(args),
            CliCommand::Build(args) => Command::Build(args.into_settings()),
            CliCommand::Push(args) => Command::Push(args.into_settings()?),
            CliCommand::Pull(args) => Command::Pull(args.into_settings()?),
            CliCommand::Sign(args) => Command::Sign(args.into_settings()?),
            CliCommand::Verify(args) => Command::Pull(args.into_settings()?),
            CliCommand::Status(args) => Command::Status(args.into_settings()),
        },
    })
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
