//! A control plane with the Plugin resource, and the directory with the plugin files.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use innkeeper_tests::{
    ControlPlane, Host, HostOptions, admin, eventually, eventually_for,
    manifest::{self, condition_status},
    process::path_from_env,
    user::Kind,
};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const PLUGIN: Kind<'static> = Kind {
    api_version: "innkeeper.dev/v1alpha1",
    kind: "Plugin",
    namespace: None,
};

/// The longest time for one step on a busy machine.
const PATIENCE: Duration = Duration::from_mins(3);

/// The interval for reading the host's log; it bounds the measurement error.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(2);

pub(crate) struct Site {
    pub(crate) plane: ControlPlane,
    options: HostOptions,
    // All hosts at the site share one cache, as one host does across restarts.
    _cache: TempDir,
    sources: TempDir,
}

impl Site {
    pub(crate) fn new() -> Result<Self> {
        let plane = ControlPlane::start_with(&["--api-only"])?;
        let cache = tempfile::tempdir()?;
        let sources = tempfile::tempdir()?;
        let directory = ["--source-dir", &sources.path().display().to_string()].map(str::to_owned);
        let options = HostOptions {
            cache: Some(cache.path().to_owned()),
            arguments: admin::ARGUMENTS
                .map(str::to_owned)
                .into_iter()
                .chain(directory)
                .collect(),
            ..HostOptions::default()
        };
        for object in manifest::load("deploy/crds/plugins.innkeeper.dev.yaml")? {
            plane.user().apply(&object)?;
        }
        let site = Self {
            plane,
            options,
            _cache: cache,
            sources,
        };
        site.wait_served("plugins.innkeeper.dev");
        Ok(site)
    }

    pub(crate) fn host(&self) -> Result<Host> {
        Host::start(&self.plane.kubeconfig(), &self.options)
    }

    /// Writes a file below the source directory and renames it into place, so that the host never reads half of it.
    pub(crate) fn put(&self, file: &str, bytes: &[u8]) -> Result<()> {
        let path = self.sources.path().join(file);
        let new = path.with_extension("new");
        fs::write(&new, bytes)?;
        Ok(fs::rename(new, path)?)
    }

    /// Applies an object with a new kind. It retries, because an API server reports a new kind as served a little too
    /// early.
    pub(crate) fn apply_new(&self, object: &Value) {
        eventually("an object can be applied", || {
            self.plane.user().apply(object).map(drop)
        });
    }

    /// Applies a Plugin with a file source and additional spec fields.
    pub(crate) fn apply(&self, name: &str, file: &str, more: &Value) -> Result<()> {
        let mut spec = json!({"source": {"file": {"path": file}}});
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        let plugin = json!({
            "apiVersion": PLUGIN.api_version, "kind": PLUGIN.kind,
            "metadata": {"name": name}, "spec": spec,
        });
        self.plane.user().apply(&plugin).map(drop)
    }

    pub(crate) fn plugin(&self, name: &str) -> Result<Value> {
        Ok(self.plane.user().get(PLUGIN, name)?.unwrap_or_default())
    }

    /// Waits until a CRD is established.
    pub(crate) fn wait_served(&self, crd: &str) {
        let kind = Kind::cluster("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        eventually(&format!("{crd} is served"), || -> Result<()> {
            let crd = self.plane.user().get(kind, crd)?.unwrap_or_default();
            match condition_status(&crd, "Established").as_str() {
                "True" => Ok(()),
                _ => bail!("{}", crd["status"]),
            }
        });
    }

    /// Waits until the host has written nothing for a while.
    pub(crate) fn settle(&self, quiet: Duration) -> Result<()> {
        let audit = self.plane.audit();
        audit
            .settle(quiet, PATIENCE, |mark| audit.by_host_since(mark))
            .map(drop)
    }
}

/// Returns a test guest's bytes.
pub(crate) fn guest(name: &str) -> Result<Vec<u8>> {
    let guests = path_from_env("INNKEEPER_TEST_GUESTS")?;
    Ok(fs::read(guests.join(format!("{name}.wasm")))?)
}

/// Counts the lines in a host's log that contain a message.
pub(crate) fn count(host: &Host, message: &str) -> Result<usize> {
    Ok(host.log()?.matches(&format!("\"{message}\"")).count())
}

/// Waits until a host has logged a message `times` times. Reading the log, unlike a request, costs the host nothing.
pub(crate) fn wait_logged(host: &Host, message: &str, times: usize) -> Result<()> {
    let begin = Instant::now();
    while count(host, message)? < times {
        if begin.elapsed() > PATIENCE {
            bail!(
                "the host has not logged {message:?} {times} times\n{}",
                host.log()?
            );
        }
        thread::sleep(LOOKED_AT_EVERY);
    }
    Ok(())
}

/// Waits until the sum over the samples with a label reaches a number.
pub(crate) fn wait_metric(host: &Host, name: &str, label: &str, wanted: f64, patience: Duration) {
    let address = admin::address(host);
    eventually_for(
        patience,
        &format!("{name} reaches {wanted}"),
        || -> Result<()> {
            // Rarely, because each scrape costs a busy host CPU time.
            thread::sleep(Duration::from_millis(500));
            let value = admin::sum(&admin::scrape(&address)?, name, label);
            if value < wanted {
                bail!("{value}");
            }
            Ok(())
        },
    );
}
