//! The command `inspect`.

use std::path::PathBuf;

use innkeeper_source::RegistrySettings;

use super::{Error, registry::RegistryArgs};

/// How `inspect` ends.
const EXIT_CODES: &str = "\
Exit codes:
  0  the file is a plugin that this host can run
  2  the artifact in the registry is something else, or has another digest
  3  the file is a plugin that failed to describe itself
  4  the file is something else, or cannot be read; what it is stands on standard output, why not on standard error
  5  the registry does not answer, or refuses to";

/// What a reference to a registry starts with.
const SCHEME: &str = "oci://";

/// Flags of `inspect`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
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
