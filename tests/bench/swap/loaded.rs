//! Many components of distinct digest that one host has loaded, with what it has resident then.
//!
//! Each is fetched, verified, compiled and described for a Plugin of its own that is granted nothing: all of them are a
//! real guest, and only one plugin may serve its kind of parents.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use innkeeper_tests::{Host, harmless::marked, process::Usage};
use serde_json::json;

use crate::site::{Site, guest, wait_metric};

const NAME: &str = "moody";

/// The promise, for a thousand.
const RESIDENT_MAX: u64 = 300 << 20;
const ANONYMOUS_MAX: u64 = 64 << 20;
const PROMISED_FOR: u32 = 1000;

/// The host looks every 10 s for code that nobody has called for 30 s, and lets it go.
const IDLE_AFTER: Duration = Duration::from_secs(45);

/// How long loading may take, for each of them.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn run(components: u32) -> Result<()> {
    let site = Site::new()?;
    let bytes = guest(NAME)?;
    let mut host = site.host()?;
    site.settle(Duration::from_secs(1))?;
    let before = host.process().usage()?;
    let begin = Instant::now();
    for number in 0..components {
        let file = format!("{number}.wasm");
        site.put(&file, &marked(&bytes, number))?;
        let fields = json!({"config": {"mood": "good"}});
        site.apply(&format!("plugin-{number}"), &file, &fields)?;
    }
    wait_loaded(&site, &host, components)?;
    let took = begin.elapsed().saturating_sub(IDLE_AFTER);
    let compiled = host.process().usage()?;
    println!(
        "{components} components of {} bytes each and of distinct digest, compiled and loaded within {took:.0?}",
        bytes.len()
    );
    println!("resident of a host without any: {}", shown(&before));
    println!(
        "resident of the host that had them compiled: {}",
        shown(&compiled)
    );

    ensure!(host.stop()?.success(), "{}", host.log()?);
    let mut host = site.host()?;
    wait_loaded(&site, &host, components)?;
    let loaded = host.process().usage()?;
    println!(
        "resident of the host that was started with them: {}, promised {} MiB, {} MiB of it anonymous, for {PROMISED_FOR}",
        shown(&loaded),
        mebibytes(RESIDENT_MAX),
        mebibytes(ANONYMOUS_MAX),
    );
    ensure!(
        components != PROMISED_FOR
            || loaded.resident_bytes < RESIDENT_MAX && loaded.anonymous_bytes < ANONYMOUS_MAX,
        "that is more than was promised"
    );
    Ok(())
}

/// Waits until all are described, and all that is to be said of them is said.
fn wait_loaded(site: &Site, host: &Host, components: u32) -> Result<()> {
    let (name, label) = ("innkeeper_plugin_condition", "condition=\"Described\"");
    wait_metric(
        host,
        name,
        label,
        f64::from(components),
        PATIENCE * components,
    );
    site.settle(IDLE_AFTER)
}

fn shown(usage: &Usage) -> String {
    let (all, anonymous) = (usage.resident_bytes, usage.anonymous_bytes);
    format!(
        "{} MiB, {} MiB of it anonymous",
        mebibytes(all),
        mebibytes(anonymous)
    )
}

const fn mebibytes(bytes: u64) -> u64 {
    bytes >> 20
}
