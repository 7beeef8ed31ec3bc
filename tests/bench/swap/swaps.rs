//! The time from a changed Plugin to its new revision's first pass, as the host measures it.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use innkeeper_tests::{
    Host, admin, eventually_for, harmless::marked, manifest::condition_status, user::Kind,
};
use serde_json::{Value, json};

use crate::{
    Times,
    site::{Site, count, guest, wait_logged},
};

const NAME: &str = "moody";
const API: &str = "test.innkeeper.dev/v1";
const CRD: &str = "moodies.test.innkeeper.dev";

/// Numbers of live parents, measured one after another on the same host.
const PARENTS: [u32; 3] = [1, 100, 1000];
/// Swaps of each kind for each number of parents.
const SWAPS: usize = 7;

/// The promise: a fixed time per swap, and a time for each live parent.
const FIXED: Duration = Duration::from_millis(10);
const PER_PARENT: Duration = Duration::from_micros(100);

/// Enough for the children of the most parents on a busy machine; only a failing run waits that long.
const PATIENCE: Duration = Duration::from_mins(3);
const FILES: [&str; 2] = ["one.wasm", "two.wasm"];

/// How the alternating revisions differ.
#[derive(Clone, Copy)]
enum Differs {
    Configuration,
    Bytes,
}

impl Differs {
    const ALL: [Self; 2] = [Self::Configuration, Self::Bytes];

    const fn word(self) -> &'static str {
        match self {
            Self::Configuration => "another configuration",
            Self::Bytes => "other bytes, named by their digest",
        }
    }
}

struct Scene {
    site: Site,
    host: Host,
    address: String,
    namespace: String,
    /// The two components' digests.
    digests: [String; 2],
    /// Counts the swaps; part of the configuration, so that each revision is new.
    turn: usize,
    parents: u32,
}

pub(crate) fn run() -> Result<()> {
    let mut scene = Scene::new()?;
    let mut late = Vec::new();
    let mut medians = [Vec::new(), Vec::new()];
    for parents in PARENTS {
        scene.grow(parents)?;
        for (differs, medians) in Differs::ALL.into_iter().zip(&mut medians) {
            let times = (0..SWAPS).map(|_| scene.swap(differs));
            let times = Times::new(times.collect::<Result<_>>()?);
            let promise = FIXED + PER_PARENT * parents;
            let line = format!(
                "swap to {} with {parents} live parents, {SWAPS} times: {times}, promised {promise:.1?}",
                differs.word(),
            );
            println!("{line}");
            medians.push(times.median());
            if times.fastest() > promise {
                late.push(line);
            }
        }
    }
    let more = PARENTS[PARENTS.len() - 1] - PARENTS[0];
    for (differs, medians) in Differs::ALL.into_iter().zip(medians) {
        let first = medians[0];
        let last = medians[medians.len() - 1];
        println!(
            "swap to {}: {first:.1?} and {:.1?} more per live parent, promised {FIXED:.1?} and {PER_PARENT:.1?}",
            differs.word(),
            last.saturating_sub(first) / more,
        );
    }
    ensure!(
        late.is_empty(),
        "the fastest swap takes longer than promised:\n{}",
        late.join("\n")
    );
    Ok(())
}

impl Scene {
    /// Starts a host that has compiled both components and has had each of them active.
    fn new() -> Result<Self> {
        let site = Site::new()?;
        let bytes = guest(NAME)?;
        println!("the component of the swaps has {} bytes", bytes.len());
        site.put(FILES[0], &bytes)?;
        site.put(FILES[1], &marked(&bytes, 2))?;
        let host = site.host()?;
        let mut scene = Self {
            namespace: site.plane.namespace("swaps")?,
            address: admin::address(&host),
            site,
            host,
            digests: Default::default(),
            turn: 0,
            parents: 0,
        };
        for (at, file) in FILES.into_iter().enumerate() {
            scene.apply(file, &scene.configured())?;
            scene.digests[at] = scene.digest(at + 1)?;
        }
        scene.site.wait_served(CRD);
        Ok(scene)
    }

    /// Returns the active revision's digest, once this many revisions have been active.
    fn digest(&self, revisions: usize) -> Result<String> {
        wait_logged(&self.host, "serving plugin", revisions)?;
        self.site.settle(Duration::from_secs(1))?;
        let plugin = self.site.plugin(NAME)?;
        ensure!(
            condition_status(&plugin, "Serving") == "True",
            "{:#}",
            plugin["status"]
        );
        let digest = plugin["status"]["digest"].as_str();
        Ok(digest.context("no digest")?.to_owned())
    }

    fn says(&self) -> String {
        format!("turn {}", self.turn)
    }

    fn configured(&self) -> Value {
        json!({"config": {"mood": "good", "says": self.says()}})
    }

    fn apply(&self, file: &str, more: &Value) -> Result<()> {
        let mut fields = more.clone();
        fields["grants"] = json!({
            "parents": [{"group": "test.innkeeper.dev", "kind": "Moody"}],
            "children": [{"kind": "ConfigMap"}],
            "crds": [{"group": "test.innkeeper.dev", "kind": "Moody"}],
        });
        self.site.apply(NAME, file, &fields)
    }

    /// Creates parents up to this number and waits for their children.
    fn grow(&mut self, parents: u32) -> Result<()> {
        for number in self.parents..parents {
            self.site.apply_new(&json!({
                "apiVersion": API, "kind": "Moody",
                "metadata": {"name": format!("moody-{number}"), "namespace": self.namespace},
                "spec": {},
            }));
        }
        self.parents = parents;
        self.wait_said()
    }

    /// Waits until every child shows the current configuration and the host stops writing.
    fn wait_said(&self) -> Result<()> {
        let kind = Kind::new("v1", "ConfigMap", &self.namespace);
        let says = self.says();
        eventually_for(PATIENCE, "all children show the configuration", || {
            let children = self
                .site
                .plane
                .user()
                .list(kind, "innkeeper.dev/plugin=moody")?;
            let good = children
                .iter()
                .filter(|child| child["data"]["says"] == *says);
            match u32::try_from(good.count())? {
                good if good == self.parents => Ok(()),
                good => bail!("{good} of {} show it", self.parents),
            }
        });
        self.site.settle(Duration::from_secs(1))
    }

    /// Swaps once, which changes every child, and returns the time that the host measured.
    fn swap(&mut self, differs: Differs) -> Result<Duration> {
        self.turn += 1;
        let at = match differs {
            Differs::Configuration => 0,
            Differs::Bytes => self.turn % 2,
        };
        let mut fields = self.configured();
        fields["digest"] = json!(self.digests[at]);
        let (swaps, seconds) = self.measured()?;
        let served = count(&self.host, "serving plugin")?;
        self.apply(FILES[at], &fields)?;
        wait_logged(&self.host, "serving plugin", served + 1)?;
        self.wait_said()?;
        let (swaps_now, seconds_now) = self.measured()?;
        let took = swaps_now - swaps;
        ensure!((took - 1.0).abs() < 0.5, "{took} swaps were measured");
        Ok(Duration::from_secs_f64(seconds_now - seconds))
    }

    /// Reads the number of swaps and their total time from the host's metrics.
    fn measured(&self) -> Result<(f64, f64)> {
        let metrics = admin::scrape(&self.address)?;
        let label = format!("plugin=\"{NAME}\"");
        let sum = |name: &str| {
            let name = format!("innkeeper_plugin_swap_seconds_{name}");
            admin::sum(&metrics, &name, &label)
        };
        Ok((sum("count"), sum("sum")))
    }
}
