//! Renders the entry of a database, storage or notifier: translated, checked, without credentials.
//!
//! An error lies in the referenced object, so the parent keeps all children.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Credential, KEYS, LocalStorage, Node, Origin, Passing, Rendered, SqliteFile, yaml::quoted,
};
use crate::{
    api::{HEADERS, Notifier, Parent, SecretKey},
    catalog::{self, Key},
    references::Source,
    script::{self, CHECK_DUMP},
    status::Warning,
    stop::Stop,
};

mod check;
mod translate;

pub(crate) use check::SHELL;

type Config = BTreeMap<String, Value>;

/// Renders a database.
pub(super) fn database(
    source: &Source,
    index: usize,
    key: &str,
    parent: &Parent,
    rendered: &mut Rendered,
) -> Result<Node, Stop> {
    let mut config = translate::database(source, parent, &mut rendered.warnings);
    check::database(source, &config)?;
    // gobackup would expand a variable in the path.
    if source.type_.name == "sqlite"
        && let Some(path) = text(&config, "path")
        && !(parent.spec.expand_env && path.contains('$'))
    {
        rendered.sqlite.push(SqliteFile {
            name: format!("{} {}", source.kind, source.name),
            path: path.to_owned(),
        });
    }
    let after_script = dump_check(source, key, &config);
    // It controls when the user's script runs.
    if text(&config, "after_script").is_none() {
        config.remove("on_exit");
    }
    set(&mut config, "after_script", after_script);
    let prefix = format!("DB{index}");
    Ok(entry(source, &config, &prefix, rendered))
}

/// Returns the script after a database's dump: the user's, then the check of the dump. If it fails, gobackup uploads
/// nothing.
///
/// The user's script comes first, because it may have to run even after a bad dump.
fn dump_check(source: &Source, key: &str, config: &Config) -> String {
    let type_ = source.type_.rendered;
    let name = script::quoted(&format!("{} {}", source.kind, source.name));
    let check = format!("sh \"${{HOME}}/{CHECK_DUMP}\" {type_} {key} {name}");
    match text(config, "after_script") {
        None => check,
        Some(script) => format!("(\n{script}\n) && {check}"),
    }
}

/// Renders a storage.
pub(super) fn storage(
    source: &Source,
    index: usize,
    key: &str,
    rendered: &mut Rendered,
) -> Result<Node, Stop> {
    let config = translate::storage(source);
    check::storage(source, &config)?;
    let keep = config.get("keep").and_then(Value::as_i64).unwrap_or(0);
    rendered.has_keep |= keep > 0;
    // With a key, gobackup reads the state file back by a signed URL, but it cannot replace the first one.
    let has_key = is_given(&config, "credentials") || is_given(&config, "credentials_file");
    if keep > 0 && source.type_.name == "gcs" && has_key {
        let message = format!(
            "{}: gobackup deletes nothing with a key for gcs, because it cannot replace its state; delete \
             old archives by a lifecycle rule of the bucket",
            source.path("keep")
        );
        rendered
            .warnings
            .push(Warning::new("RetentionNotKept", message));
    } else if keep > 0
        && matches!(source.type_.name, "us3" | "kodo")
        && !config.contains_key("storage_class")
    {
        let message = format!(
            "{}: gobackup stores its list of archives in a class from which it cannot read it back; set \
             config.storage_class to one that can be read at once",
            source.path("keep")
        );
        rendered
            .warnings
            .push(Warning::new("RetentionNotKept", message));
    } else if keep > 0 && !source.type_.keeps_its_state() {
        rendered.forgetful.push(source.name.clone());
    }
    if source.type_.name == "local" {
        rendered.local.push(LocalStorage {
            name: source.name.clone(),
            key: key.to_owned(),
            mount: source.root.clone(),
            path: text(&config, "path").unwrap_or_default().to_owned(),
        });
    }
    let prefix = format!("ST{index}");
    Ok(entry(source, &config, &prefix, rendered))
}

/// Renders a notifier that has passed `validate`.
pub(super) fn notifier(
    notifier: &Notifier,
    index: usize,
    rendered: &mut Rendered,
) -> Result<Node, Stop> {
    let Some(type_) = catalog::NOTIFIERS.find(&notifier.type_) else {
        let name = &notifier.name;
        let type_ = &notifier.type_;
        let message = format!("notifiers: {name}: type {type_} is unknown to gobackup");
        return Err(Stop::invalid_reference(message));
    };
    let mut source = Source {
        kind: "notifiers:",
        name: notifier.name.clone(),
        type_,
        config: notifier.config.clone(),
        root: String::new(),
        is_scratch: false,
    };
    let prefix = format!("NT{index}");
    let mut headers = Vec::new();
    if type_.has_headers
        && let Some(Value::Object(secrets)) = source.config.remove(HEADERS)
    {
        for (number, (header, secret)) in secrets.into_iter().enumerate() {
            let Ok(secret) = serde_json::from_value::<SecretKey>(secret) else {
                continue;
            };
            let name = format!("{prefix}_HEADER_{number}");
            headers.push((quoted(&header), Node::Variable(name.clone())));
            rendered.credentials.push(Credential {
                name,
                origin: Origin::Secret(secret),
                passing: Passing::Value,
                field: source.path(&format!("{HEADERS}.{header}")),
            });
        }
    }
    let Node::Map(mut members) = entry(&source, &source.config, &prefix, rendered) else {
        return Ok(Node::Map(Vec::new()));
    };
    if !headers.is_empty() {
        members.push(("headers".to_owned(), Node::Map(headers)));
    }
    Ok(Node::Map(members))
}

/// Returns a key's text, unless it is empty.
fn text<'a>(config: &'a Config, key: &str) -> Option<&'a str> {
    config.get(key)?.as_str().filter(|text| !text.is_empty())
}

/// Returns a key's flag; false if absent.
fn flag(config: &Config, key: &str) -> bool {
    config.get(key).and_then(Value::as_bool).unwrap_or(false)
}

/// Returns true if the key has a value, in the object or in a Secret.
pub(crate) fn is_given(config: &Config, key: &str) -> bool {
    let is_there = |key: &str| config.get(key).is_some_and(|value| !is_empty(value));
    is_there(key) || is_there(&format!("{key}_ref"))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Returns true for a value that means the same as no value and is left out.
fn is_silent(key: &str, value: &Value) -> bool {
    match key {
        // An empty class selects the bucket's default, an absent one gobackup's.
        "storage_class" => value.is_null(),
        "keep" => value.as_i64() == Some(0),
        _ => is_empty(value),
    }
}

fn entry(source: &Source, config: &Config, prefix: &str, rendered: &mut Rendered) -> Node {
    let mut members = BTreeMap::new();
    for (name, value) in config {
        if is_silent(name, value) {
            continue;
        }
        if let Some(key) = source.type_.key_of_twin(name) {
            if let Ok(secret) = serde_json::from_value::<SecretKey>(value.clone()) {
                let origin = Origin::Secret(secret);
                let passing = passing(source, config, key);
                let field = source.path(name);
                let (name, node) = credential(key, origin, field, passing, prefix, rendered);
                members.insert(name, node);
            }
        } else if let Some(key) = source.type_.key(name) {
            let passing = passing(source, config, key);
            let (name, node) = member(source, key, passing, value, prefix, rendered);
            members.insert(name, node);
        } else {
            rendered.warnings.push(Warning::new(
                "FieldIgnored",
                format!(
                    "{} is unknown to gobackup for {}",
                    source.path(name),
                    source.type_.name
                ),
            ));
        }
    }
    let type_ = Node::Text(source.type_.rendered.to_owned());
    let first = ("type".to_owned(), type_);
    Node::Map(std::iter::once(first).chain(members).collect())
}

fn member(
    source: &Source,
    key: &'static Key,
    passing: Passing,
    value: &Value,
    prefix: &str,
    rendered: &mut Rendered,
) -> (String, Node) {
    if let Some(clear) = value.as_str()
        && key.is_secret
        && !is_path(key, clear)
    {
        let field = source.path(key.name);
        rendered.warnings.push(Warning::new(
            "ClearTextCredential",
            format!("{field} is written in clear text; use a Secret"),
        ));
        let origin = Origin::Clear(clear.to_owned());
        return credential(key, origin, field, passing, prefix, rendered);
    }
    let node = match value {
        Value::String(text) => Node::Text(text.clone()),
        Value::Array(items) => {
            let texts = items.iter().filter_map(Value::as_str);
            Node::Texts(texts.map(str::to_owned).collect())
        }
        other => Node::Plain(other.to_string()),
    };
    (key.name.to_owned(), node)
}

/// Returns true if the value of `private_key` is a path instead of a key.
fn is_path(key: &Key, text: &str) -> bool {
    key.name == "private_key" && !text.contains("-----BEGIN")
}

/// The way in which gobackup passes a credential on.
fn passing(source: &Source, config: &Config, key: &Key) -> Passing {
    match key.name {
        "private_key" | "credentials" => Passing::File,
        "username" if check::uses_shell(source, config) => Passing::Shell,
        "username" if source.type_.splits(key) => Passing::Operand,
        _ if source.type_.splits(key) => Passing::Word,
        _ => Passing::Value,
    }
}

/// Adds a credential to the list, and returns the key and the node that refer to it.
fn credential(
    key: &Key,
    origin: Origin,
    field: String,
    passing: Passing,
    prefix: &str,
    rendered: &mut Rendered,
) -> (String, Node) {
    let name = format!("{prefix}_{}", key.name.to_uppercase());
    rendered.credentials.push(Credential {
        name: name.clone(),
        origin,
        passing,
        field,
    });
    if passing != Passing::File {
        return (key.name.to_owned(), Node::Variable(name));
    }
    let rendered_key = match key.name {
        "credentials" => "credentials_file",
        other => other,
    };
    let path = Node::Text(format!("{KEYS}/{name}"));
    (rendered_key.to_owned(), path)
}

/// Returns the texts in a key's list.
fn texts<'a>(config: &'a Config, key: &str) -> Vec<&'a str> {
    let items = config.get(key).and_then(Value::as_array);
    items
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Moves a value to gobackup's name for the key, unless that key has a value too.
fn rename(config: &mut Config, old: &str, new: &str) {
    if let Some(value) = config.remove(old) {
        config.entry(new.to_owned()).or_insert(value);
    }
}

fn set(config: &mut Config, key: &str, value: impl Into<Value>) {
    config.insert(key.to_owned(), json!(value.into()));
}
