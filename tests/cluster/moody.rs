//! A Plugin whose configuration decides whether it works, with parents and the web server that serves
//! the component.

use std::{fs, path::PathBuf};

use innkeeper_tests::{Host, eventually, process::path_from_env};
use serde_json::{Value, json};

use crate::{
    plugins::{HEALTHY, PLUGIN, PluginSite},
    suite::Target,
    web::Web,
};

pub(crate) const NAME: &str = "moody";
const CRD: &str = "moodies.test.innkeeper.dev";
pub(crate) const API: &str = "test.innkeeper.dev/v1";

/// A control plane with Plugins, a web server that serves a guest, and a number of parents.
pub(crate) struct MoodyFixture {
    pub(crate) site: PluginSite,
    pub(crate) web: Web,
    pub(crate) parents: usize,
}

impl MoodyFixture {
    pub(crate) fn new(parents: usize) -> Self {
        let mut site = PluginSite::new();
        let local = "--allow-local-sources".to_owned();
        site.stage.options.arguments.push(local);
        site.define();
        Self {
            web: Web::start(guest("moody")),
            site,
            parents,
        }
    }

    /// A fixture, and a host that serves a working configuration to all parents.
    pub(crate) fn started(parents: usize) -> (Self, Host) {
        Self::started_with(parents, &good("one"))
    }

    /// A fixture, and a host that serves a spec whose children say `one` to all parents.
    pub(crate) fn started_with(parents: usize, spec: &Value) -> (Self, Host) {
        let fixture = Self::new(parents);
        let host = fixture.start_with(spec);
        (fixture, host)
    }

    /// Starts a host, and serves a working configuration to all parents.
    pub(crate) fn start(&self) -> Host {
        self.start_with(&good("one"))
    }

    /// Starts a host, and serves a spec whose children say `one` to all parents.
    pub(crate) fn start_with(&self, spec: &Value) -> Host {
        let host = self.site.stage.host_serving(&["plugins.innkeeper.dev"]);
        self.apply(spec);
        self.wait_healthy(&host);
        self.site.stage.wait_served(&host, &[CRD]);
        for number in 0..self.parents {
            self.put(number, &json!({"touchy": number == 0}));
        }
        self.wait_text(&host, "one");
        host
    }

    /// Applies the Plugin with these fields in addition to source and grants.
    pub(crate) fn apply(&self, more: &Value) {
        let mut spec = json!({
            "source": {"http": {"url": self.web.url()}},
            "grants": {
                "parents": [{"group": "test.innkeeper.dev", "kind": "Moody"}],
                "children": [{"kind": "ConfigMap"}, {"kind": "Secret"}],
                "crds": [{"group": "test.innkeeper.dev", "kind": "Moody"}],
            },
        });
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let plugin = json!({
            "apiVersion": PLUGIN.api_version, "kind": PLUGIN.kind,
            "metadata": {"name": NAME}, "spec": spec,
        });
        self.site.stage.apply_new("", &plugin);
    }

    /// Applies a spec whose revision fails for the parents, and returns it with the approval.
    #[track_caller]
    pub(crate) fn approved(&self, host: &Host, more: &Value) -> Value {
        self.apply(more);
        let status = self.wait(host, &["Ready=False/TooManyFaults"]);
        let mut approved = more.clone();
        approved["rollout"]["approve"] = status["candidate"]["revision"].clone();
        approved
    }

    pub(crate) fn put(&self, number: usize, spec: &Value) {
        let parent = json!({
            "apiVersion": API, "kind": "Moody", "metadata": {"name": name(number)}, "spec": spec,
        });
        self.site.stage.apply_new(&self.site.namespace, &parent);
    }

    pub(crate) fn status(&self) -> Value {
        self.site.plugin_of(NAME)["status"].clone()
    }

    #[track_caller]
    pub(crate) fn wait(&self, host: &Host, expected: &[&str]) -> Value {
        let plugin = self.site.wait_conditions_of(NAME, host, expected);
        plugin["status"].clone()
    }

    #[track_caller]
    pub(crate) fn wait_healthy(&self, host: &Host) -> Value {
        self.wait(host, &HEALTHY)
    }

    /// Waits until every parent has a child with this text.
    #[track_caller]
    pub(crate) fn wait_text(&self, host: &Host, says: &str) {
        for number in 0..self.parents {
            let name = name(number);
            self.site
                .stage
                .wait(host, &self.site.namespace, config_map(&name), |child| {
                    child["data"]["says"] == says
                });
        }
    }

    /// Returns true if every parent has a child with this text.
    pub(crate) fn has_text(&self, says: &str) -> bool {
        (0..self.parents).all(|number| {
            let name = name(number);
            self.site
                .stage
                .find(&self.site.namespace, config_map(&name))
                .is_some_and(|child| child["data"]["says"] == says)
        })
    }

    /// The verdicts in the revision history, the latest first.
    pub(crate) fn verdicts(&self) -> Vec<String> {
        let verdict = |entry: &Value| entry["verdict"].as_str().unwrap().to_owned();
        self.status()["history"]
            .as_array()
            .into_iter()
            .flatten()
            .map(verdict)
            .collect()
    }

    #[track_caller]
    pub(crate) fn wait_verdicts(&self, host: &Host, expected: &[&str]) {
        eventually(&format!("the history is {expected:?}"), || {
            let verdicts = self.verdicts();
            if verdicts == expected {
                return Ok(());
            }
            let log = host.log().unwrap_or_default();
            Err(format!("{verdicts:?}, {:#}\n{log}", self.status()))
        });
    }

    pub(crate) fn uids(&self) -> Vec<Value> {
        let uid = |number| {
            let name = name(number);
            let child = self.site.stage.get(&self.site.namespace, config_map(&name));
            child["metadata"]["uid"].clone()
        };
        (0..self.parents).map(uid).collect()
    }

    /// Kills the host, and starts another one.
    pub(crate) fn crash(&self, mut host: Host) -> Host {
        host.process().kill().unwrap();
        self.site.stage.host()
    }

    /// Checks that the host still reconciles, by editing a parent.
    #[track_caller]
    pub(crate) fn check_reconciles(&self, host: &Host, note: &str) {
        let last = self.parents - 1;
        self.put(last, &json!({"note": note}));
        let name = name(last);
        self.site
            .stage
            .wait(host, &self.site.namespace, config_map(&name), |child| {
                child["data"]["note"] == note
            });
    }
}

pub(crate) fn name(number: usize) -> String {
    format!("moody-{number}")
}

pub(crate) fn config_map(name: &str) -> Target<'_> {
    ("v1", "ConfigMap", name)
}

pub(crate) fn guest(name: &str) -> Vec<u8> {
    fs::read(guest_file(name)).unwrap()
}

/// The component file for a test guest.
pub(crate) fn guest_file(name: &str) -> PathBuf {
    path_from_env("INNKEEPER_TEST_GUESTS")
        .unwrap()
        .join(name)
        .with_extension("wasm")
}

pub(crate) fn good(says: &str) -> Value {
    json!({"config": {"mood": "good", "says": says}})
}

pub(crate) fn mood(mood: &str) -> Value {
    json!({"config": {"mood": mood, "says": mood}})
}
