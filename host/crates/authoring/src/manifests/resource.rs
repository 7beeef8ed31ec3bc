//! The Plugin resource: source, grants, and the requests that it leaves to the administrator.

use innkeeper_command::Definitions;
use innkeeper_model::yaml;
use innkeeper_plugin_controller::resource::{GROUP, file_of_grants};
use innkeeper_policy::Grants;
use serde_json::{Map, Value, json};

use super::{Document, Granted};
use crate::args::{ManifestsArgs, PluginAccount};

/// Grant lists with the fields that distinguish two entries; none: all fields.
const LISTS: [(&str, Option<[&str; 2]>); 4] = [
    ("parents", Some(["group", "kind"])),
    ("crds", Some(["group", "kind"])),
    ("children", Some(["group", "kind"])),
    ("reads", None),
];

/// Returns a plugin's Plugin resource.
pub(super) fn plugin(plugin: &Granted<'_>, args: &ManifestsArgs) -> Document {
    let mut grants = file_of_grants(&plugin.grants);
    let withheld = withheld(
        &file_of_grants(&Grants::requested(plugin.manifest)),
        &grants,
    );
    if let Some(PluginAccount { namespace, name }) = args.account(plugin) {
        let account = json!({"namespace": namespace, "name": name});
        grants.insert("serviceAccountRef".to_owned(), account);
    }
    let mut spec = json!({"source": plugin.source, "grants": grants});
    if args.crds == Definitions::Ignore {
        spec["crds"] = "Ignore".into();
    }
    Document {
        comments: plugin.powers().chain(withheld).collect(),
        object: json!({
            "apiVersion": format!("{GROUP}/v1alpha1"),
            "kind": "Plugin",
            "metadata": {"name": plugin.manifest.name.as_str()},
            "spec": spec,
        }),
    }
}

/// Returns the requests that the grants omit, each with a reason and in `spec.grants` form.
fn withheld(requested: &Map<String, Value>, granted: &Map<String, Value>) -> Vec<String> {
    let mut lines = Vec::new();
    for (list, key) in LISTS {
        let key_of = |entry: &Value| match key {
            Some(fields) => json!(fields.map(|field| &entry[field])),
            None => entry.clone(),
        };
        let entries = |grants: &Map<String, Value>| {
            grants
                .get(list)
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default()
        };
        let granted: Vec<Value> = entries(granted).iter().map(key_of).collect();
        for entry in entries(requested) {
            if granted.contains(&key_of(&entry)) {
                continue;
            }
            let reason = reason(&entry);
            lines.push(format!(
                "Not granted: {reason}. To grant it, add this to {list} of spec.grants, and to a file for --grants, which adds it to the role:"
            ));
            let text = yaml::write(&[json!([entry])]).unwrap_or_default();
            lines.extend(text.lines().map(str::to_owned));
        }
    }
    lines
}

fn reason(entry: &Value) -> &'static str {
    if entry["builtin"] == true {
        "its parents are objects of Kubernetes itself"
    } else if entry["privileged"] == true {
        "it is a privileged kind, with which a plugin has power over the cluster or over others"
    } else if entry["group"] == "" && entry["kind"] == "Secret" {
        "it shows the values of Secrets"
    } else {
        "the given grants leave it out"
    }
}
