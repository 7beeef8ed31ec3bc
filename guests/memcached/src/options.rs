//! memcached options that parents may set besides those with a field.
//!
//! An allow list: options reference files and libraries in too many ways to deny them one by one (files with memory
//! or values, Lua proxy code, keys, tokens). Only options that reach nothing outside the process are accepted.

use std::collections::BTreeMap;

use innkeeper_kit::tenants::{Form, check_listed};

const PATH: &str = "spec.memcached.extraArgs";

/// Accepted options: short name, long name, value form.
pub(crate) const OPTIONS: &[(&str, &str, Form)] = &[
    ("-C", "--disable-cas", Form::Nothing),
    ("-F", "--disable-flush-all", Form::Nothing),
    ("-L", "--enable-largepages", Form::Nothing),
    ("-M", "--disable-evictions", Form::Nothing),
    ("-R", "--max-reqs-per-event", Form::Between(1, 1_000_000)),
    ("-W", "--disable-watch", Form::Nothing),
    ("-X", "--disable-dumping", Form::Nothing),
    ("-b", "--listen-backlog", Form::Number),
    ("-f", "--slab-growth-factor", Form::Decimal(1, 100)),
    ("-k", "--lock-memory", Form::Nothing),
    ("-n", "--slab-min-size", Form::Between(1, 524_288)),
];

/// The option whose value lists extended options.
const EXTENDED: [&str; 2] = ["-o", "--extended"];

/// Accepted extended options, separated by commas in one value.
pub(crate) const EXTENDED_OPTIONS: &[(&str, Form)] = &[
    (
        "hash_algorithm",
        Form::Choice(&["jenkins", "murmur3", "xxh3"]),
    ),
    ("hashpower", Form::Between(13, 28)),
    ("hot_lru_pct", PERCENT),
    ("hot_max_factor", Form::Decimal(0, 1000)),
    ("idle_timeout", Form::Number),
    ("inline_ascii_resp", Form::Nothing),
    ("lru_crawler", Form::Nothing),
    ("lru_crawler_sleep", Form::Between(0, 1_000_000)),
    ("lru_crawler_tocrawl", Form::Number),
    ("lru_maintainer", Form::Nothing),
    ("maxconns_fast", Form::Nothing),
    ("modern", Form::Nothing),
    ("no_chunked_items", Form::Nothing),
    ("no_hashexpand", Form::Nothing),
    ("no_inline_ascii_resp", Form::Nothing),
    ("no_lru_crawler", Form::Nothing),
    ("no_lru_maintainer", Form::Nothing),
    ("no_maxconns_fast", Form::Nothing),
    ("no_modern", Form::Nothing),
    ("no_slab_automove", Form::Nothing),
    ("no_slab_reassign", Form::Nothing),
    ("read_buf_mem_limit", Form::Number),
    ("resp_obj_mem_limit", Form::Number),
    ("slab_automove", Form::Choice(&["", "0", "1", "2"])),
    ("slab_automove_ratio", Form::Decimal(0, 1)),
    ("slab_automove_window", Form::Between(3, 1000)),
    ("slab_chunk_max", CHUNK),
    ("slab_reassign", Form::Nothing),
    ("tail_repair_time", Form::Between(10, 1_000_000)),
    ("temporary_ttl", Form::Number),
    ("track_sizes", Form::Nothing),
    ("warm_lru_pct", PERCENT),
    ("warm_max_factor", Form::Decimal(0, 1000)),
    ("watcher_logbuf_size", Form::Between(1, 65536)),
    ("worker_logbuf_size", Form::Between(64, 4096)),
];

/// A share of memory. memcached exits if hot and warm items together exceed 80 %.
const PERCENT: Form = Form::Between(1, 79);

/// A part of a slab page that divides every valid maximum item size.
const CHUNK: Form = Form::Choice(&["16384", "32768", "65536", "131072", "262144", "524288"]);

/// Options that have a field, make memcached exit, or move it away from the port and the probes.
const RESERVED: &[&str] = &[
    "-B",
    "--protocol",
    "-I",
    "--max-item-size",
    "-P",
    "--pidfile",
    "-S",
    "--enable-sasl",
    "-U",
    "--udp-port",
    "-V",
    "--version",
    "-Y",
    "--auth-file",
    "-Z",
    "--enable-ssl",
    "-a",
    "--unix-mask",
    "-c",
    "--conn-limit",
    "-d",
    "--daemon",
    "-h",
    "--help",
    "-i",
    "--license",
    "-l",
    "--listen",
    "-m",
    "--memory-limit",
    "-p",
    "--port",
    "-s",
    "--unix-socket",
    "-t",
    "--threads",
    "-u",
    "--user",
    "-v",
    "--verbose",
];

/// Checks the extra arguments: an accepted option needs a value in the right form, and an option that the configuration
/// lists takes any value.
///
/// The bounds are those with which memcached starts. An option and the value are two items or one `--option=value`.
/// memcached also reads other forms, such as `-f1.25` and `--slab-g=1.25`, in which an option could hide.
pub(crate) fn check(arguments: &[String], listed: &[String]) -> Result<(), String> {
    let mut arguments = arguments.iter().map(String::as_str).peekable();
    let mut extended = BTreeMap::new();
    while let Some(argument) = arguments.next() {
        let (name, joined) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value)),
            _ => (argument, None),
        };
        if argument.starts_with('-') && argument.contains(char::is_whitespace) {
            return Err(format!(
                "{PATH}: \"{argument}\": write a flag and its value as two items"
            ));
        }
        if RESERVED.contains(&name) {
            return Err(format!(
                "{PATH}: {name} has its own field or would break the probes: remove it"
            ));
        }
        let entry = OPTIONS
            .iter()
            .find(|option| option.0 == name || option.1 == name);
        let is_extended = EXTENDED.contains(&name);
        if entry.is_none() && !is_extended {
            check_listed(PATH, "tenants.extraArgs", [&name.to_owned()], listed)?;
            // Skips the option's value; memcached ignores the item if the option takes none.
            if joined.is_none() {
                arguments.next_if(|next| !next.starts_with('-'));
            }
            continue;
        }
        let takes_none = entry.is_some_and(|option| option.2 == Form::Nothing);
        let value = match joined {
            None if takes_none => "",
            None => arguments
                .next()
                .ok_or_else(|| format!("{PATH}: {name} needs a value, as the next item"))?,
            Some(value) => value,
        };
        match entry {
            Some(entry) => check_value(name, entry.2, value)?,
            None => {
                for option in value.split(',') {
                    check_extended(option, listed)?;
                    let (name, value) = option.split_once('=').unwrap_or((option, ""));
                    extended.insert(name, value);
                }
            }
        }
    }
    check_together(&extended)
}

/// Checks for `-o` options that exclude each other.
fn check_together(extended: &BTreeMap<&str, &str>) -> Result<(), String> {
    let percent = |name: &str, default: u32| {
        extended
            .get(name)
            .and_then(|value| value.parse().ok())
            .unwrap_or(default)
    };
    if percent("hot_lru_pct", 20) + percent("warm_lru_pct", 40) > 80 {
        return Err(format!(
            "{PATH}: hot_lru_pct (default 20) and warm_lru_pct (default 40) must be at most 80 together"
        ));
    }
    if extended.contains_key("temporary_ttl") && extended.contains_key("no_lru_maintainer") {
        return Err(format!(
            "{PATH}: temporary_ttl needs the LRU maintainer: remove no_lru_maintainer"
        ));
    }
    Ok(())
}

/// Checks one `-o` option.
fn check_extended(option: &str, listed: &[String]) -> Result<(), String> {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    match EXTENDED_OPTIONS.iter().find(|option| option.0 == name) {
        Some((_, form)) => check_value(name, *form, value),
        None => check_listed(PATH, "tenants.extraArgs", [&name.to_owned()], listed),
    }
}

fn check_value(name: &str, form: Form, value: &str) -> Result<(), String> {
    if form.accepts(value) {
        return Ok(());
    }
    Err(format!("{PATH}: {name} \"{value}\": write {form}"))
}
