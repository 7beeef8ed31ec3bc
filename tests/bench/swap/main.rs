//! The cost of Plugins beside their passes: swaps, cold starts, a thousand loaded components, idle plugins.
//!
//! Each part has a separate API server and etcd, and a host as users start it. Run by `cargo bench`, with the suites'
//! environment; arguments after `--` select parts: `swaps`, `cold`, `loaded`, `loaded:COUNT`, `idle`.

#![expect(
    clippy::print_stdout,
    reason = "its figures are for the person who runs it"
)]

mod cold;
mod idle;
mod loaded;
mod site;
mod swaps;

use std::{env, fmt, time::Duration};

use anyhow::{Context as _, Result, bail};

/// The default number of loaded components.
const LOADED: u32 = 1000;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args()
        .skip(1)
        // `cargo bench` adds this argument.
        .filter(|argument| argument != "--bench")
        .collect();
    if arguments.is_empty() {
        for part in ["swaps", "cold", "idle", "loaded"] {
            measure(part)?;
        }
    }
    arguments.iter().try_for_each(|part| measure(part))
}

fn measure(part: &str) -> Result<()> {
    match part.split_once(':').unwrap_or((part, "")) {
        ("swaps", "") => swaps::run(),
        ("cold", "") => cold::run(),
        ("idle", "") => idle::run(),
        ("loaded", "") => loaded::run(LOADED),
        ("loaded", count) => {
            let count = count.parse();
            loaded::run(count.with_context(|| format!("{part:?} has no number after the colon"))?)
        }
        _ => bail!("unknown argument {part:?}: use swaps, cold, loaded, loaded:COUNT or idle"),
    }
}

/// The sorted durations from several measurements; never empty.
struct Times(Vec<Duration>);

impl Times {
    fn new(mut times: Vec<Duration>) -> Self {
        assert!(!times.is_empty(), "nothing was measured");
        times.sort_unstable();
        Self(times)
    }

    fn median(&self) -> Duration {
        self.0[self.0.len() / 2]
    }

    fn fastest(&self) -> Duration {
        self.0[0]
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let median = self.median();
        let fastest = self.fastest();
        let slowest = self.0[self.0.len() - 1];
        write!(
            f,
            "median {median:.1?}, from {fastest:.1?} to {slowest:.1?}"
        )
    }
}
