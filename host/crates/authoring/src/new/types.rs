//! Generates Rust types from a CustomResourceDefinition schema.
//!
//! Follows kopium's rules. kopium is no dependency, because its release needs another version of the Kubernetes types,
//! and two versions do not build together.

use std::{collections::BTreeSet, fmt::Write as _};

use heck::{ToSnakeCase as _, ToUpperCamelCase as _};
use innkeeper_command::plain;
use serde_json::Value;

/// Rust keywords that may not be field names.
const KEYWORDS: &str = " abstract as async await become box break const continue crate do dyn else enum extern false final \
fn for gen if impl in let loop macro match mod move mut override priv pub ref return self static struct super trait true try \
type typeof unsafe unsized use virtual where while yield ";

/// Rust types that the generated code names without their paths.
const USED: [&str; 4] = ["Option", "Self", "String", "Vec"];

/// The derives for each type.
const DERIVES: &str = "#[derive(serde::Serialize, serde::Deserialize, Clone, Debug, PartialEq)]\n";

/// Returns true for a Rust keyword.
pub(super) fn is_keyword(name: &str) -> bool {
    KEYWORDS.contains(&format!(" {name} "))
}

/// Returns true for a type name that a kind may not have, because the generated code means another type by it.
pub(super) fn is_used(name: &str) -> bool {
    USED.contains(&name)
}

/// Returns Rust types for a kind: one struct for the object, and one for each object and enumeration below.
pub(super) fn rust_types(kind: &str, schema: &Value) -> String {
    let mut types = Types::default();
    types.names.insert(kind.to_owned());
    let mut fields = String::from(
        "    /// The metadata.\n    pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,\n",
    );
    for name in ["spec", "status"] {
        if let Some(property) = schema["properties"].get(name) {
            // Without a spec there is nothing to reconcile.
            types.field(&mut fields, kind, name, property, name == "spec");
        }
    }
    let description = comment(&schema["description"], "", kind);
    let root = format!("\n{description}{DERIVES}pub struct {kind} {{\n{fields}}}\n");
    root + &types.text
}

#[derive(Default)]
struct Types {
    names: BTreeSet<String>,
    text: String,
}

impl Types {
    /// Appends a field to a struct's text.
    fn field(
        &mut self,
        fields: &mut String,
        owner: &str,
        name: &str,
        schema: &Value,
        required: bool,
    ) {
        let path = format!("{owner}{}", name.to_upper_camel_case());
        let mut shape = self.type_for(&path, schema);
        let mut attributes = format!("    #[serde(rename = {name:?}");
        if !required || schema["nullable"] == true {
            shape = format!("Option<{shape}>");
            attributes.push_str(", default, skip_serializing_if = \"Option::is_none\"");
        }
        fields.push_str(&comment(&schema["description"], "    ", name));
        write!(
            fields,
            "{attributes})]\n    pub {}: {shape},\n",
            identifier(&name.to_snake_case())
        )
        .expect("a text takes all");
    }

    /// Returns the Rust type for a schema, and writes the types that it needs.
    fn type_for(&mut self, path: &str, schema: &Value) -> String {
        if schema["x-kubernetes-int-or-string"] == true {
            return "k8s_openapi::apimachinery::pkg::util::intstr::IntOrString".to_owned();
        }
        match schema["type"].as_str() {
            Some("string") => match schema["enum"].as_array() {
                Some(all) => self.enumeration(path, all),
                None => "String".to_owned(),
            },
            Some("boolean") => "bool".to_owned(),
            Some("integer") if schema["format"] == "int32" => "i32".to_owned(),
            Some("integer") => "i64".to_owned(),
            Some("number") => "f64".to_owned(),
            Some("array") => format!("Vec<{}>", self.type_for(path, &schema["items"])),
            Some("object") if schema["properties"].is_object() => self.object(path, schema),
            Some("object") if schema["additionalProperties"].is_object() => {
                let value = self.type_for(path, &schema["additionalProperties"]);
                format!("std::collections::BTreeMap<String, {value}>")
            }
            _ => "serde_json::Value".to_owned(),
        }
    }

    fn object(&mut self, path: &str, schema: &Value) -> String {
        let name = self.unique(path);
        let required = schema["required"].as_array();
        let mut fields = String::new();
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            let required = required.is_some_and(|all| all.iter().any(|name| name == field));
            self.field(&mut fields, &name, field, property, required);
        }
        let description = comment(&schema["description"], "", path);
        write!(
            self.text,
            "\n{description}{DERIVES}pub struct {name} {{\n{fields}}}\n"
        )
        .expect("a text takes all");
        name
    }

    fn enumeration(&mut self, path: &str, all: &[Value]) -> String {
        let name = self.unique(path);
        let mut taken = BTreeSet::new();
        let mut variants = String::new();
        for text in all.iter().filter_map(Value::as_str) {
            let mut variant = identifier(&text.to_upper_camel_case());
            // `a-b` and `a_b` give the same variant.
            while !taken.insert(variant.clone()) {
                variant.push('_');
            }
            write!(
                variants,
                "    /// The text `{text}`.\n    #[serde(rename = {text:?})]\n    {variant},\n"
            )
            .expect("a text takes all");
        }
        write!(
            self.text,
            "\n/// The values of {path}.\n{DERIVES}pub enum {name} {{\n{variants}}}\n"
        )
        .expect("a text takes all");
        name
    }

    /// Returns a unique type name.
    fn unique(&mut self, path: &str) -> String {
        let mut name = path.to_owned();
        // `fooBar.baz` and `foo.barBaz` give the same name.
        while !self.names.insert(name.clone()) {
            name.push('_');
        }
        name
    }
}

/// Returns a description as a comment; every public item in a project has one.
fn comment(description: &Value, indent: &str, usual: &str) -> String {
    // Four spaces and brackets mean code and links in rustdoc.
    let text = description
        .as_str()
        .filter(|text| !text.trim().is_empty())
        .map_or_else(
            || format!("The {usual}."),
            |text| text.replace(['[', ']', '<', '>'], "|"),
        );
    text.lines()
        .map(|line| {
            format!("{indent}/// {}", plain(line.trim()))
                .trim_end()
                .to_owned()
                + "\n"
        })
        .collect()
}

/// Returns a valid Rust name that is close to a text.
fn identifier(text: &str) -> String {
    let plain: String = text
        .chars()
        .filter(|character| character.is_ascii_alphanumeric() || *character == '_')
        .collect();
    if plain.is_empty() || plain.starts_with(|first: char| first.is_ascii_digit()) {
        format!("_{plain}")
    // Rust does not accept these as raw identifiers.
    } else if ["self", "Self", "super", "crate"].contains(&plain.as_str()) {
        format!("{plain}_")
    } else if is_keyword(&plain) {
        format!("r#{plain}")
    } else {
        plain
    }
}
