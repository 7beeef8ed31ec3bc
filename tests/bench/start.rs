//! The time from host start to the first pass, with all plugins compiled before.
//!
//! A real API server has one parent per guest. The bench starts a host several times and waits until the log shows the
//! first guest answer. Run by `cargo bench`, with the suites' environment.

#![expect(
    clippy::print_stdout,
    reason = "its figures are for the person who runs it"
)]

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use innkeeper_tests::{ControlPlane, Host, HostOptions, eventually};

/// The promise, without the time for lists.
const FIRST_PASS_MAX: Duration = Duration::from_millis(300);
const STARTS: usize = 15;
const GUESTS: [&str; 4] = ["memcached", "wordpress", "etcd", "backup"];
/// A hundred times the promise; only a failing run waits that long.
const PATIENCE: Duration = Duration::from_secs(30);

/// The debug message that the host logs after a guest has answered.
const PASS: &str = "guest answered";
const SERVING: &str = "serving plugin";

fn main() -> Result<()> {
    let plane = ControlPlane::start_with(&["--api-only"])?;
    let cache = tempfile::tempdir()?;
    let options = HostOptions {
        cache: Some(cache.path().to_owned()),
        environment: vec![(
            "INNKEEPER_LOG".to_owned(),
            "info,innkeeper=debug".to_owned(),
        )],
        ..HostOptions::with_guests(&GUESTS)?
    };
    apply_parents(&plane, &options)?;

    let mut times = Vec::with_capacity(STARTS);
    for _ in 0..STARTS {
        times.push(first_pass(&plane, &options)?);
    }
    times.sort_unstable();
    let [fastest, .., slowest] = times[..] else {
        unreachable!("there are several starts");
    };
    let median = times[STARTS / 2];
    println!(
        "from the start of the process to the first pass, {} plugins, {STARTS} starts: median {median:.0?}, from {fastest:.0?} to {slowest:.0?}",
        GUESTS.len()
    );
    ensure!(
        fastest <= FIRST_PASS_MAX,
        "the fastest start takes longer than {FIRST_PASS_MAX:?}"
    );
    Ok(())
}

/// Starts a host once, which installs the CRDs and compiles the plugins, and applies the parents.
fn apply_parents(plane: &ControlPlane, options: &HostOptions) -> Result<()> {
    let mut host = Host::start(&plane.kubeconfig(), options)?;
    eventually("all plugins are active", || {
        let log = host.log().unwrap_or_default();
        if log.matches(SERVING).count() == GUESTS.len() {
            Ok(())
        } else {
            Err(log)
        }
    });
    let namespace = plane.namespace("start")?;
    for guest in GUESTS {
        plane.apply_example(&namespace, &format!("examples/{guest}/01-article.yaml"))?;
    }
    ensure!(host.stop()?.success(), "{}", host.log()?);
    Ok(())
}

fn first_pass(plane: &ControlPlane, options: &HostOptions) -> Result<Duration> {
    let start = Instant::now();
    let mut host = Host::start(&plane.kubeconfig(), options)?;
    let took = loop {
        let log = host.log()?;
        if log.contains(PASS) {
            break start.elapsed();
        }
        if start.elapsed() > PATIENCE {
            return Err(anyhow::Error::msg(log)).context("the host runs no pass");
        }
        thread::sleep(Duration::from_millis(1));
    };
    ensure!(host.stop()?.success(), "{}", host.log()?);
    Ok(took)
}
