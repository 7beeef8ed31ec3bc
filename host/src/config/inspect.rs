//! The command `inspect`.

use std::path::PathBuf;

use innkeeper_source::RegistrySettings;

use super::{Error, registry::RegistryArgs, streams::exit_codes};

/// What a reference to a registry starts with.
const SCHEME: &str = "oci://";

/// Flags of `inspect`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = exit_codes!("the file is no plugin that this host can run; standard output has its known properties"))]
pub(super) struct InspectArgs {
    /// The file to look at, at most 32 MiB, or oci:// and a reference to an artifact in a registry
    #[arg(value_name = "FILE|oci://REFERENCE")]
    target: PathBuf,
    #[command(flatten)]
    registry: RegistryArgs,
    /// Print in this form
    #[arg(long, short, value_enum, default_value_t = InspectFormat::Text)]
    output: InspectFormat,
}

/// What to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectSettings {
    /// What to look at.
    pub target: Inspected,
    /// The form.
    pub output: InspectFormat,
}

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspected {
    /// A file.
    File(PathBuf),
    /// An artifact.
    Artifact {
        /// Its name.
        reference: String,
        /// How its registry is spoken with.
        registry: RegistrySettings,
    },
}

impl InspectArgs {
    pub(super) fn into_settings(self) -> Result<InspectSettings, Error> {
        let Self {
            target,
            registry,
            output,
        } = self;
        let reference = target.to_str().and_then(|text| text.strip_prefix(SCHEME));
        let target = match reference.map(str::to_owned) {
            Some(reference) => Inspected::Artifact {
                reference,
                registry: registry.into_settings()?,
            },
            None => Inspected::File(target),
        };
        Ok(InspectSettings { target, output })
    }
}

/// How the findings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum InspectFormat {
    /// For people.
    Text,
    /// As one JSON object.
    Json,
}
