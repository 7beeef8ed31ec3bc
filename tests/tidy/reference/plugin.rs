//! The Plugin resource page, generated from the CRD schema.

use std::fmt::Write as _;

use innkeeper_plugin_controller::resource;
use serde_json::Value;

use super::{TAKES_ANY_TEXT, cell, check, sentence, table};

/// Returns the Plugin resource's schema.
pub(super) fn schema() -> Value {
    let crd = Value::Object(resource::crd());
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

fn type_of(schema: &Value) -> String {
    let name = schema["type"].as_str().unwrap_or("any");
    match name {
        _ if schema["x-kubernetes-int-or-string"] == true => "integer or string".to_owned(),
        "array" => format!("list of {}s", type_of(&schema["items"])),
        "object" if schema["properties"]["matchLabels"].is_object() => "label selector".to_owned(),
        "object" if schema["additionalProperties"].is_object() => "map".to_owned(),
        name => name.to_owned(),
    }
}

fn rules(schema: &Value) -> String {
    let mut text = String::new();
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> = values
            .iter()
            .filter_map(Value::as_str)
            .map(|value| format!("`{value}`"))
            .collect();
        write!(text, " Values: {}.", values.join(", ")).expect(TAKES_ANY_TEXT);
    }
    if let Some(default) = schema.get("default") {
        let default = match default {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let is_shown = !["", "{}", "[]"].contains(&&*default) && default.len() < 40;
        if is_shown {
            write!(text, " Default: `{default}`.").expect(TAKES_ANY_TEXT);
        }
    }
    text + &range(schema)
}

/// Returns a number's bounds as a sentence.
pub(super) fn range(schema: &Value) -> String {
    match (schema["minimum"].as_f64(), schema["maximum"].as_f64()) {
        (Some(min), Some(max)) => format!(" Range: {min} to {max}."),
        (Some(min), None) => format!(" At least {min}."),
        (None, Some(max)) => format!(" At most {max}."),
        (None, None) => String::new(),
    }
}

/// Adds the fields below a schema.
fn fields(schema: &Value, path: &str, rows: &mut Vec<[String; 3]>) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let is_list = field["type"] == "array";
        let path = format!("{path}{}{name}", if path.is_empty() { "" } else { "." });
        let must = if required.contains(&Value::from(name.as_str())) {
            ", required"
        } else {
            ""
        };
        let docs = field["description"].as_str().unwrap_or_default();
        let text = format!("{}{}", sentence(docs), rules(field));
        let type_name = type_of(field);
        rows.push([
            format!("`{path}{}`", if is_list { "[]" } else { "" }),
            format!("{type_name}{must}"),
            cell(text.trim()),
        ]);
        // Its fields are the same in all of Kubernetes.
        if type_name == "label selector" {
            continue;
        }
        let inner = if is_list { &field["items"] } else { field };
        fields(
            inner,
            &format!("{path}{}", if is_list { "[]" } else { "" }),
            rows,
        );
    }
}

#[test]
fn the_page_of_plugins_is_up_to_date() {
    let schema = schema();
    let mut body = String::new();
    for (part, about) in [
        (
            "spec",
            "An administrator writes the spec. [Limits and defaults](limits.md) has the fields of `limits`.",
        ),
        (
            "status",
            "Only the host writes the status. [Conditions](conditions.md) explains `conditions`.",
        ),
    ] {
        let part_schema = &schema["properties"][part];
        let mut rows = Vec::new();
        fields(part_schema, "", &mut rows);
        rows.retain(|[name, ..]| !name.starts_with("`limits."));
        write!(
            body,
            "## {part}\n\n{about}\n\n{}\n",
            table(["field", "type", "meaning"], rows)
        )
        .expect(TAKES_ANY_TEXT);
        let rules: Vec<[String; 1]> = part_schema["x-kubernetes-validations"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|rule| [cell(rule["message"].as_str().unwrap_or_default())])
            .collect();
        if !rules.is_empty() {
            write!(
                body,
                "The API server refuses a {part} that breaks one of these rules:\n\n{}\n",
                table(["rule"], rules)
            )
            .expect(TAKES_ANY_TEXT);
        }
    }
    let opening = "Every field in the spec and the status of `plugins.innkeeper.dev/v1alpha1`, as `kubectl explain plugins.spec --recursive` prints them.\nComplete Plugins are in [examples/plugins](../../../examples/plugins).";
    check("plugin.md", "The Plugin resource", opening, &body);
}
