//! The cost of active plugins without work: the host's CPU time and memory, with one plugin and with many.

use std::{thread::sleep, time::Duration};

use anyhow::{Result, ensure};
use innkeeper_tests::{
    Host,
    harmless::{definition, idle},
    process::Usage,
};
use serde_json::json;

use crate::site::{Site, wait_logged};

const MANY: u32 = 50;

/// The observed period without work.
const WATCHED_FOR: Duration = Duration::from_secs(30);

/// The promise is no CPU time. The limit allows for /proc, which counts in steps of 10 ms.
const CPU_PER_SECOND_MAX: Duration = Duration::from_millis(1);

pub(crate) fn run() -> Result<()> {
    let site = Site::new()?;
    let mut host = site.host()?;
    serve(&site, &host, 0..1)?;
    let one = watch(&site, &mut host)?;
    serve(&site, &host, 1..MANY)?;
    let many = watch(&site, &mut host)?;
    println!(
        "CPU time of the host in {WATCHED_FOR:.0?}: {:.0?} with one idle plugin, {:.0?} with {MANY}",
        one.cpu, many.cpu
    );
    let more = MANY - 1;
    let each = (many.cpu.saturating_sub(one.cpu) / more).div_f64(WATCHED_FOR.as_secs_f64());
    println!("each further idle plugin: {each:.1?} of CPU time in a second, promised none");
    let kib = |of: fn(&Usage) -> u64| of(&many).saturating_sub(of(&one)) / u64::from(more) / 1024;
    println!(
        "each further idle plugin that serves, with its two watches: {} KiB resident, {} KiB of it anonymous",
        kib(|usage| usage.resident_bytes),
        kib(|usage| usage.anonymous_bytes),
    );
    ensure!(
        each <= CPU_PER_SECOND_MAX,
        "idle plugins cost CPU time: more than {CPU_PER_SECOND_MAX:?} each in a second"
    );
    Ok(())
}

/// Applies Plugins, each with a separate parent kind, and waits until they are active.
fn serve(site: &Site, host: &Host, numbers: std::ops::Range<u32>) -> Result<()> {
    for number in numbers.clone() {
        let group = format!("group-{number}.test");
        site.apply_new(&definition(&group));
        let file = format!("{number}.wasm");
        site.put(&file, &idle(&group))?;
        let fields = json!({"grants": {
            "parents": [{"group": group, "kind": "Idle"}],
            "children": [{"kind": "ConfigMap"}],
        }});
        site.apply(&format!("plugin-{number}"), &file, &fields)?;
    }
    wait_logged(host, "serving plugin", usize::try_from(numbers.end)?)?;
    site.settle(Duration::from_secs(5))
}

/// Returns the host's CPU time during a period without work, and the memory at the end.
fn watch(site: &Site, host: &mut Host) -> Result<Usage> {
    site.settle(Duration::from_secs(3))?;
    let before = host.process().usage()?;
    sleep(WATCHED_FOR);
    let after = host.process().usage()?;
    let cpu = after.cpu.saturating_sub(before.cpu);
    Ok(Usage { cpu, ..after })
}
