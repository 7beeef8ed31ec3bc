//! A host's resident memory with many loaded components that have distinct digests.
//!
//! The host fetches, verifies, compiles and describes each component for a separate Plugin. The Plugins have no grants:
//! all components are the same real guest, and only one plugin can be active for a parent kind.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use innkeeper_tests::{Host, harmless::marked, process::Usage};
use serde_json::json;

use crate::site::{Site, guest, wait_metric};

const NAME: &str = "moody";

/// The promise for 1000 components.
const RESIDENT_MAX: u64 = 300 << 20;
const ANONYMOUS_MAX: u64 = 64 << 20;
const PROMISED_FOR: u32 = 1000;

/// Longer than an unused component stays mapped: every 10 s the host drops code that was not called for 30 s.
const IDLE_AFTER: Duration = Duration::from_secs(45);

/// The longest time to load one component.
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
    println!(
        "resident memory of a host without plugins: {}",
        shown(&before)
    );
    println!(
        "resident memory of the host that compiled them: {}",
        shown(&compiled)
    );

    ensure!(host.stop()?.success(), "{}", host.log()?);
    let mut host = site.host()?;
    wait_loaded(&site, &host, components)?;
    let loaded = host.process().usage()?;
    println!(
        "resident memory of a host started with them: {}, promised {} MiB, {} MiB of it anonymous, for {PROMISED_FOR}",
        shown(&loaded),
        mebibytes(RESIDENT_MAX),
        mebibytes(ANONYMOUS_MAX),
    );
    ensure!(
        components != PROMISED_FOR
            || loaded.resident_bytes < RESIDENT_MAX && loaded.anonymous_bytes < ANONYMOUS_MAX,
        "the resident memory is above the promise"
    );
    Ok(())
}

/// Waits until all components are described and the host has written all conditions.
fn wait_loaded(site: &Site, host: &Host, components: u32) -> Result<()> {
    let name = "innkeeper_plugin_condition";
    let label = "condition=\"Described\"";
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
    let all = usage.resident_bytes;
    let anonymous = usage.anonymous_bytes;
    format!(
        "{} MiB, {} MiB of it anonymous",
        mebibytes(all),
        mebibytes(anonymous)
    )
}

const fn mebibytes(bytes: u64) -> u64 {
    bytes >> 20
}
