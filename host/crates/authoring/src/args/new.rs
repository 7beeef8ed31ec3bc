//! The command `new`.

use std::path::PathBuf;

use innkeeper_command::{examples, exit_codes};
use innkeeper_model::{
    Gvk,
    syntax::{is_dns_label, is_dns_subdomain},
};
use semver::VersionReq;

/// Flags of `new`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper new pond", "innkeeper new pond --kind example.com/v1/Pond", "innkeeper new pond --from-crd crd.yaml"), exit_codes!()))]
pub struct NewArgs {
    /// Directory to create; its last part names the plugin and its package.
    #[arg(value_name = "NAME")]
    pub directory: PathBuf,
    /// Take the parents from this CustomResourceDefinition (YAML or JSON), and generate their Rust types.
    #[arg(long, value_name = "FILE")]
    pub from_crd: Option<PathBuf>,
    /// Parent kind [default: example.com/v1/NAME in CamelCase; with --from-crd: the storage version of the only kind].
    #[arg(long, value_name = "GROUP/VERSION/KIND", value_parser = parent_kind)]
    pub kind: Option<Gvk>,
    /// SDK: a published version, a directory, or a repository's commit [default: the one in this program, unpacked to
    /// .innkeeper/sdk].
    #[arg(long, value_name = "VERSION|PATH|git+URL#REV", value_parser = sdk)]
    pub sdk: Option<Sdk>,
}

/// The origin of an SDK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sdk {
    /// A published version.
    Version(VersionReq),
    /// A directory.
    Path(PathBuf),
    /// A commit of a repository.
    Git {
        /// The address of the repository.
        url: String,
        /// The commit.
        rev: String,
    },
}

fn parent_kind(text: &str) -> Result<Gvk, String> {
    const FORM: &str = "write it as GROUP/VERSION/KIND, for example example.com/v1/Pond";

    let [group, version, kind] = text.split('/').collect::<Vec<_>>()[..] else {
        return Err(FORM.to_owned());
    };
    let is_version = version.starts_with('v') && is_dns_label(version);
    let is_group = group.contains('.') && is_dns_subdomain(group);
    let is_kind = kind.starts_with(|first: char| first.is_ascii_uppercase())
        && kind
            .chars()
            .all(|character| character.is_ascii_alphanumeric());
    if is_group && is_version && is_kind {
        Ok(Gvk::new(group, version, kind))
    } else {
        Err(FORM.to_owned())
    }
}

fn sdk(text: &str) -> Result<Sdk, String> {
    if let Some(repository) = text.strip_prefix("git+") {
        return match repository.split_once('#') {
            Some((url, rev)) if !url.is_empty() && !rev.is_empty() => Ok(Sdk::Git {
                url: url.to_owned(),
                rev: rev.to_owned(),
            }),
            _ => Err("write it as git+URL#REV, where REV is a commit".to_owned()),
        };
    }
    if let Ok(version) = VersionReq::parse(text) {
        return Ok(Sdk::Version(version));
    }
    let path = PathBuf::from(text);
    if path.join("Cargo.toml").is_file() {
        Ok(Sdk::Path(path))
    } else {
        Err("it is no version, and no directory with the Cargo.toml of an SDK".to_owned())
    }
}
