//! The host refuses broken components at the step that detects the fault. The Plugin reports the
//! reason, the host writes nothing else for it, and another Plugin's parents converge meanwhile.

use std::{fs, sync::OnceLock};

use innkeeper_tests::{Host, Write, astray, eventually, handmade, manifest::condition};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    moody::guest,
    plugins::{HEALTHY, PLUGIN},
    stage::{Stage, is_applied},
};

const NEIGHBOUR: &str = "unruly";
const CRD: &str = "unrulies.test.innkeeper.dev";
const API: &str = "test.innkeeper.dev/v1";

/// The control plane and the host that all tests here share, with one good Plugin.
struct Shared {
    host: Host,
    stage: Stage,
    sources: TempDir,
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        let sources = tempfile::tempdir().unwrap();
        let mut stage = Stage::api_only(Vec::new());
        stage.options.arguments = ["--source-dir", sources.path().to_str().unwrap()]
            .map(str::to_owned)
            .into();
        stage.install_plugin_crd();
        let host = stage.host_serving(&["plugins.innkeeper.dev"]);
        let shared = Shared {
            host,
            stage,
            sources,
        };
        shared.declare(NEIGHBOUR, &guest(NEIGHBOUR));
        shared.wait(NEIGHBOUR, &HEALTHY);
        shared.stage.wait_served(&shared.host, &[CRD]);
        shared
    })
}

impl Shared {
    /// Applies a Plugin with this component and all grants that the component requests.
    fn declare(&self, name: &str, bytes: &[u8]) {
        let file = format!("{name}.wasm");
        fs::write(self.sources.path().join(&file), bytes).unwrap();
        let group = "test.innkeeper.dev";
        let plugin = json!({
            "apiVersion": PLUGIN.api_version, "kind": PLUGIN.kind, "metadata": {"name": name},
            "spec": {
                "source": {"file": {"path": file}},
                "grants": {
                    "parents": [{"group": group, "kind": "Unruly"}, {"group": group, "kind": "Garbage"}],
                    "children": [{"kind": "ConfigMap"}, {"group": group, "kind": "Garbage"}],
                },
            },
        });
        self.stage.apply_new("", &plugin);
    }

    /// Waits until a Plugin has all these conditions (`Type=Status/Reason`), and returns their
    /// messages.
    #[track_caller]
    fn wait(&self, name: &str, expected: &[&str]) -> String {
        eventually(&format!("the Plugin {name} is {expected:?}"), || {
            let plugin = self
                .stage
                .plane
                .user()
                .get(PLUGIN, name)
                .unwrap()
                .unwrap_or_default();
            let message_of = |expected: &&str| {
                let (kind, state) = expected.split_once('=').unwrap();
                let message = condition(&plugin, kind)?;
                message.starts_with(&format!("{state}:")).then_some(message)
            };
            let messages: Option<Vec<String>> = expected.iter().map(message_of).collect();
            let log = || self.host.log().unwrap_or_default();
            messages
                .map(|messages| messages.join("\n"))
                .ok_or_else(|| format!("{:#}\n{}", plugin["status"], log()))
        })
    }
}

/// Checks that the host refuses a component with this condition and `text` in the message.
#[track_caller]
fn check_refused(name: &str, bytes: &[u8], expected: &str, text: &str) {
    let shared = shared();
    let Shared { stage, host, .. } = shared;
    let namespace = stage.namespace("refusals");
    let mark = stage.mark();
    shared.declare(name, bytes);
    let messages = shared.wait(name, &[expected]);
    assert!(messages.contains(text), "{messages}");

    let parent = (API, "Unruly", "bystander");
    let applied = json!({
        "apiVersion": API, "kind": "Unruly", "metadata": {"name": parent.2}, "spec": {"behaviour": "good"},
    });
    stage.apply(&namespace, &applied);
    stage.wait(host, &namespace, parent, is_applied);

    // For a Plugin that does not serve, the host writes the status and Events and nothing else.
    let is_own =
        |write: &&Write| write.name == name || write.uri.contains(&format!("innkeeper%3A{name}"));
    let is_told = |write: &&Write| {
        ["plugins.innkeeper.dev/status", "events.events.k8s.io"].contains(&&*write.resource)
    };
    let writes = stage.writes_since(mark);
    assert!(
        writes
            .iter()
            .any(|write| write.uri.contains("innkeeper%3A")),
        "{writes:?}"
    );
    let foreign: Vec<String> = writes
        .iter()
        .filter(is_own)
        .filter(|write| !is_told(write))
        .map(Write::line)
        .collect();
    assert_eq!(foreign, Vec::<String>::new());
    stage.plane.user().delete(PLUGIN, name).unwrap();
}

/// One test per component: the names of test and Plugin, the component, the condition, and a part
/// of the message.
macro_rules! refused {
    ($($test:ident: $name:literal, $bytes:expr, $condition:literal, $text:literal;)*) => {
        $(
            #[test]
            fn $test() {
                check_refused($name, &$bytes, $condition, $text);
            }
        )*
    };
}

refused! {
    refuses_a_guest_that_spins_in_describe:
        "spins", handmade::spins_in_describe(), "Described=False/CannotDescribe", "within 1000 ms";
    refuses_a_guest_that_spins_in_its_start_function:
        "starts", handmade::spins_at_start(), "Described=False/CannotDescribe", "within 1000 ms";
    refuses_a_guest_that_traps_in_describe:
        "breaks", handmade::breaks_down_in_describe(), "Described=False/CannotDescribe", "unreachable";
    refuses_a_guest_that_imports_a_network:
        "network", handmade::imports("wasi:http/types@0.2.3"), "Compiled=False/CannotCompile",
        "wasi:http/types@0.2.3 (plugins have no network";
    refuses_a_guest_that_imports_a_file_system:
        "files", handmade::imports("wasi:filesystem/types@0.3.0"), "Compiled=False/CannotCompile",
        "wasi:filesystem/types@0.3.0 (plugins have no files";
    refuses_a_guest_that_imports_an_unknown_interface:
        "doors", handmade::imports("acme:doors/front@1.0.0"), "Compiled=False/CannotCompile",
        "only innkeeper:plugin may be imported";
    refuses_a_guest_that_exports_the_wrong_type:
        "number", handmade::exports_another_type(), "Described=False/CannotDescribe",
        "differ from the contract";
    refuses_a_guest_whose_embedded_description_is_false:
        "liar", handmade::described_falsely(&guest("garbage")), "Described=False/CannotDescribe",
        "the embedded description differs from the executed one";
    refuses_a_core_module:
        "core", handmade::core_module(), "Compiled=False/CannotCompile", "a core WebAssembly module";
    refuses_a_truncated_component:
        "half", half(&guest("garbage")), "Compiled=False/CannotCompile", "the file is truncated";
    refuses_a_guest_with_a_hundred_thousand_functions:
        "functions", handmade::has_functions(100_000), "Compiled=False/CompileLimitExceeded", "functions";
    refuses_a_guest_with_data_outside_of_its_memory:
        "data", handmade::has_data_out_of_bounds(), "Described=False/CannotDescribe", "out of bounds";
    refuses_a_guest_that_exhausts_the_compiler_s_memory:
        "astray", astray::wants_memory(), "Compiled=False/CompileLimitExceeded",
        "compiling the component takes more than";
}

fn half(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.len() / 2].to_vec()
}
