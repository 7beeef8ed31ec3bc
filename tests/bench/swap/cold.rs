//! The time from applying a Plugin with a never compiled component until the plugin is active.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use innkeeper_tests::{Host, harmless::marked};
use serde_json::{Value, json};

use crate::{
    Times,
    site::{PLUGIN, Site, count, guest, wait_logged},
};

const NAME: &str = "moody";
const FILE: &str = "plugin.wasm";
const ROUNDS: u32 = 7;

/// The promise, for a 1 MB component.
const SERVING_MAX: Duration = Duration::from_millis(1500);

pub(crate) fn run() -> Result<()> {
    let site = Site::new()?;
    let bytes = guest(NAME)?;
    let host = site.host()?;
    // Measured separately: the API server needs time to serve a new kind, independently of the component.
    let first = serve(&site, &host, &marked(&bytes, 0))?;
    let times = (1..=ROUNDS).map(|round| {
        leave(&site, &host)?;
        serve(&site, &host, &marked(&bytes, round))
    });
    let times = Times::new(times.collect::<Result<_>>()?);
    println!(
        "a component of {} bytes that was never compiled, from the apply until it is active, {ROUNDS} times: {times}, promised {SERVING_MAX:.1?} for 1 MB; compiling takes {} of it",
        bytes.len(),
        compiling(&host)?,
    );
    println!("the first one, with the installation of its CustomResourceDefinition: {first:.1?}");
    ensure!(
        times.fastest() <= SERVING_MAX,
        "the fastest takes longer than {SERVING_MAX:?}"
    );
    Ok(())
}

fn serve(site: &Site, host: &Host, bytes: &[u8]) -> Result<Duration> {
    site.put(FILE, bytes)?;
    let served = count(host, "serving plugin")?;
    let fields = json!({
        "config": {"mood": "good"},
        "grants": {
            "parents": [{"group": "test.innkeeper.dev", "kind": "Moody"}],
            "children": [{"kind": "ConfigMap"}],
            "crds": [{"group": "test.innkeeper.dev", "kind": "Moody"}],
        },
    });
    let begin = Instant::now();
    site.apply(NAME, FILE, &fields)?;
    wait_logged(host, "serving plugin", served + 1)?;
    let took = begin.elapsed();
    site.settle(Duration::from_secs(1))?;
    Ok(took)
}

/// Deletes the Plugin and waits until the host has released it.
fn leave(site: &Site, host: &Host) -> Result<()> {
    const GONE: &str = "the Plugin is gone, or not chosen any more, its children stay";

    let evicted = count(host, GONE)?;
    site.plane.user().delete(PLUGIN, NAME)?;
    wait_logged(host, GONE, evicted + 1)?;
    site.settle(Duration::from_secs(1))
}

/// Returns the compile times that the host has logged, without the first one.
fn compiling(host: &Host) -> Result<Times> {
    let log = host.log()?;
    let lines = log.lines().filter_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["message"] == "compiled a plugin")
            .then(|| line["elapsed"].as_str().map(str::to_owned))?
    });
    let times = lines.skip(1).map(|text| duration(&text));
    Ok(Times::new(times.collect::<Result<_>>()?))
}

/// Parses a duration in Rust's debug format, such as `812.5ms`.
fn duration(text: &str) -> Result<Duration> {
    let scale = [("ms", 1e-3), ("s", 1.0)];
    let scaled = scale.into_iter().find_map(|(unit, scale)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(Duration::from_secs_f64(number * scale))
    });
    scaled.with_context(|| format!("{text} is no duration"))
}
