//! The options of memcached that a parent may state besides those with a field.
//!
//! Options name files and libraries in more ways than a list could name: memory and values in files, Lua code of the proxy,
//! keys, tokens. So the check knows those that reach nothing outside of the process, and refuses the others.

use innkeeper_sdk::tenants::{Form, check_listed};

const PATH: &str = "spec.memcached.extraArgs";

/// The options in both spellings, with the form of the value.
pub(crate) const OPTIONS: &[(&str, &str, Form)] = &[
    ("-C", "--disable-cas", Form::Nothing),
    ("-F", "--disable-flush-all", Form::Nothing),
    ("-L", "--enable-largepages", Form::Nothing),
    ("-M", "--disable-evictions", Form::Nothing),
    ("-R", "--max-reqs-per-event", Form::Number),
    ("-W", "--disable-watch", Form::Nothing),
    ("-X", "--disable-dumping", Form::Nothing),
    ("-b", "--listen-backlog", Form::Number),
    ("-f", "--slab-growth-factor", Form::Decimal),
    ("-k", "--lock-memory", Form::Nothing),
    ("-n", "--slab-min-size", Form::Number),
];

/// The option with further options.
const EXTENDED: [&str; 2] = ["-o", "--extended"];

/// The further options, which stand in one value with commas between them.
pub(crate) const EXTENDED_OPTIONS: &[(&str, Form)] = &[
    (
        "hash_algorithm",
        Form::Choice(&["jenkins", "murmur3", "xxh3"]),
    ),
    ("hashpower", Form::Number),
    ("hot_lru_pct", Form::Number),
    ("hot_max_factor", Form::Decimal),
    ("idle_timeout", Form::Number),
    ("inline_ascii_resp", Form::Nothing),
    ("lru_crawler", Form::Nothing),
    ("lru_crawler_sleep", Form::Number),
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
    ("slab_automove_ratio", Form::Decimal),
    ("slab_automove_window", Form::Number),
    ("slab_chunk_max", Form::Number),
    ("slab_reassign", Form::Nothing),
    ("tail_repair_time", Form::Number),
    ("temporary_ttl", Form::Number),
    ("track_sizes", Form::Nothing),
    ("warm_lru_pct", Form::Number),
    ("warm_max_factor", Form::Decimal),
    ("watcher_logbuf_size", Form::Number),
    ("worker_logbuf_size", Form::Number),
];

/// The options that have a field, end memcached, or move it away from its port and the probes.
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

/// Checks the further arguments: options that reach nothing outside of the process with values of their form, and those that
/// the configuration lists with any value.
///
/// An option and its value are two items, or one `--option=value`. The program reads other forms too, such as `-f1.25` and
/// `--slab-g=1.25`, in which an option could hide.
pub(crate) fn check(arguments: &[String], listed: &[String]) -> Result<(), String> {
    let mut arguments = arguments.iter().map(String::as_str).peekable();
    while let Some(argument) = arguments.next() {
        let (name, joined) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value)),
            _ => (argument, None),
        };
        if RESERVED.contains(&name) {
            return Err(format!(
                "{PATH}: {name} has a field of its own, or would break the probes: leave it out"
            ));
        }
        let known = OPTIONS.iter().find(|it| it.0 == name || it.1 == name);
        let is_extended = EXTENDED.contains(&name);
        if known.is_none() && !is_extended {
            check_listed(PATH, "tenants.extraArgs", [&name.to_owned()], listed)?;
            // The value of an option that takes one; memcached ignores it after any other.
            if joined.is_none() {
                arguments.next_if(|next| !next.starts_with('-'));
            }
            continue;
        }
        let takes_none = known.is_some_and(|it| it.2 == Form::Nothing);
        let value = match joined {
            None if takes_none => "",
            None => arguments
                .next()
                .ok_or_else(|| format!("{PATH}: {name} needs a value, as the next item"))?,
            Some(value) => value,
        };
        match known {
            Some(known) => check_value(name, known.2, value)?,
            None => value
                .split(',')
                .try_for_each(|option| check_extended(option, listed))?,
        }
    }
    Ok(())
}

/// Checks one of the options in the value of `-o`.
fn check_extended(option: &str, listed: &[String]) -> Result<(), String> {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    match EXTENDED_OPTIONS.iter().find(|it| it.0 == name) {
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
