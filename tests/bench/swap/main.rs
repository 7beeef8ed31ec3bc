//! What Plugins cost beside their passes: swaps, cold starts, a thousand that are loaded, and those that are idle.
//!
//! Each on an API server and etcd of its own, and a host as its users start it. Run by `cargo bench`, with the
//! environment of the suites; arguments after `--` ask for a part: `swaps`, `cold`, `loaded`, `loaded:COUNT`, `idle`.

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

/// How many components are loaded where nobody asks for another number.
const LOADED: u32 = 1000;

fn main() -> Result<()> {
    let asked: Vec<String> = env::args()
        .skip(1)
        // Said by cargo.
        .filter(|argument| argument != "--bench")
        .collect();
    if asked.is_empty() {
        for part in ["swaps", "cold", "idle", "loaded"] {
            measure(part)?;
        }
    }
    asked.iter().try_for_each(|part| measure(part))
}

fn measure(part: &str) -> Result<()> {
    match part.split_once(':').unwrap_or((part, "")) {
        ("swaps", "") => swaps::run(),
        ("cold", "") => cold::run(),
        ("idle", "") => idle::run(),
        ("loaded", "") => loaded::run(LOADED),
        ("loaded", count) => {
            let count = count.parse();
            loaded::run(count.with_context(|| format!("{part:?} should have a number"))?)
        }
        _ => bail!("{part:?} is unknown: say swaps, cold, loaded, loaded:COUNT or idle"),
    }
}

/// How long something took, several times; never empty.
struct Times(Vec<Duration>);

impl Times {
    fn of(mut times: Vec<Duration>) -> Self {
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
        let (median, fastest) = (self.median(), self.fastest());
        let slowest = self.0[self.0.len() - 1];
        write!(
            f,
            "median {median:.1?}, from {fastest:.1?} to {slowest:.1?}"
        )
    }
}
