//! A command line tool that builds guest crates into components.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgGroup, Parser};
use innkeeper_guest_build::{
    DEV_PROFILE, Environment, Guest, PROFILE, Request, Toolchain, ToolchainError, build,
};

/// Exit code if no compiler on this machine can build a guest.
const EXIT_NO_TOOLCHAIN: u8 = 4;

/// Build Innkeeper guest crates into components.
#[derive(Debug, Parser)]
#[command(version, group(ArgGroup::new("guests").required(true).multiple(true)))]
struct Args {
    /// Build this workspace package into the component NAME. Default: the package name without the prefix
    /// innkeeper-guest-
    #[arg(short, long = "package", value_name = "PACKAGE[=NAME]", group = "guests", value_parser = guest)]
    packages: Vec<Guest>,
    /// Build every guest in the workspace below this directory, named like its crate directory
    #[arg(long, value_name = "DIR", group = "guests")]
    below: Option<PathBuf>,
    /// Directory for the components, as NAME.wasm
    #[arg(long, value_name = "DIR", default_value = "target/guests")]
    out: PathBuf,
    /// cargo target directory
    #[arg(long, value_name = "DIR", default_value = "target/wasm")]
    target_dir: PathBuf,
    /// Workspace directory
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,
    /// Build faster, without link-time optimisation
    #[arg(long)]
    dev: bool,
    /// Fail instead of changing Cargo.lock
    #[arg(long)]
    locked: bool,
    /// Only check for a guest compiler and build nothing; exit code 4 if there is none
    #[arg(long, group = "guests")]
    check: bool,
}

fn guest(text: &str) -> Result<Guest, String> {
    let Some((package, name)) = text.split_once('=') else {
        return Ok(Guest::for_package(text));
    };
    if package.is_empty() || name.is_empty() || name.contains('/') {
        return Err("expected PACKAGE or PACKAGE=NAME, and no / in NAME".to_owned());
    }
    Ok(Guest {
        package: package.to_owned(),
        name: name.to_owned(),
    })
}

#[expect(
    clippy::print_stderr,
    reason = "progress and errors of a command line tool"
)]
fn main() -> ExitCode {
    let mut report = |line: &str| eprintln!("{line}");
    match run(Args::parse(), &mut report) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(format!("error: {error:#}").trim_end());
            if error.is::<ToolchainError>() {
                ExitCode::from(EXIT_NO_TOOLCHAIN)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn run(args: Args, report: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
    let environment = Environment::from_process();
    let workspace_root = args
        .workspace
        .canonicalize()
        .with_context(|| format!("failed to find the workspace {}", args.workspace.display()))?;
    if args.check {
        let toolchain = Toolchain::find(&environment, &workspace_root, report)?;
        report(&format!("guests are built with {toolchain}"));
        return Ok(());
    }
    let mut guests = args.packages;
    if let Some(below) = &args.below {
        guests.extend(Guest::all_below(&environment, &workspace_root, below)?);
    }
    if guests.is_empty() {
        report("no guests to build");
        return Ok(());
    }
    let toolchain = Toolchain::find(&environment, &workspace_root, report)?;
    let request = Request {
        workspace_root,
        guests,
        target_dir: std::path::absolute(args.target_dir)?,
        out_dir: args.out,
        profile: (if args.dev { DEV_PROFILE } else { PROFILE }).to_owned(),
        locked: args.locked,
    };
    build(&environment, &toolchain, &request, report)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_packages_with_and_without_a_name() {
        let pair = |package: &str, name: &str| Guest {
            package: package.to_owned(),
            name: name.to_owned(),
        };
        assert_eq!(
            guest("innkeeper-guest-etcd"),
            Ok(pair("innkeeper-guest-etcd", "etcd"))
        );
        assert_eq!(guest("pond-plugin=pond"), Ok(pair("pond-plugin", "pond")));
    }

    #[test]
    fn rejects_names_that_are_no_file_names() {
        for text in ["=pond", "pond=", "pond=../pond"] {
            assert!(guest(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rejects_a_command_without_a_guest() {
        assert!(Args::try_parse_from(["innkeeper-guest-build"]).is_err());
        assert!(Args::try_parse_from(["innkeeper-guest-build", "--below", "guests"]).is_ok());
        assert!(Args::try_parse_from(["innkeeper-guest-build", "-p", "pond"]).is_ok());
        assert!(Args::try_parse_from(["innkeeper-guest-build", "--check"]).is_ok());
    }
}
