//! Flags with a value for one plugin, as PLUGIN=VALUE.

use std::{collections::BTreeMap, path::Path};

use innkeeper_model::{error_chain, yaml};
use serde_json::{Map, Value};

use crate::{Exit, Failure, file};

/// The value of a flag PLUGIN=VALUE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginValue<T> {
    /// The plugin's name.
    pub plugin: String,
    /// The value as the user wrote it.
    text: String,
    /// The parsed value.
    pub value: T,
}

impl<T> PluginValue<T> {
    /// Parses PLUGIN=VALUE; an error shows the `form`.
    pub fn parse(
        text: &str,
        form: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Self, String> {
        match text.split_once('=') {
            Some((plugin, value)) if !plugin.is_empty() && !value.is_empty() => Ok(Self {
                plugin: plugin.to_owned(),
                text: value.to_owned(),
                value: parse(value)?,
            }),
            _ => Err(format!("write it as {form}")),
        }
    }

    /// Checks that the flag gives each plugin at most one value.
    pub fn check_unique(flag: &'static str, values: &[Self]) -> Result<(), Failure> {
        let mut texts = BTreeMap::new();
        for Self { plugin, text, .. } in values {
            if let Some(first) = texts.insert(plugin, text) {
                let message = format!(
                    "{flag} names plugin {plugin} twice, with {first} and {text}: give one of them"
                );
                return Err(Failure::new(Exit::Usage, message));
            }
        }
        Ok(())
    }
}

/// The object in a file for one plugin.
pub type PluginObject = PluginValue<Map<String, Value>>;

/// Parses PLUGIN=FILE and reads the file.
pub fn plugin_object(text: &str) -> Result<PluginObject, String> {
    PluginValue::parse(text, "PLUGIN=FILE", object_in)
}

/// Reads a YAML or JSON file with one object.
pub fn object_in(path: &str) -> Result<Map<String, Value>, String> {
    let text = file::read_text(Path::new(path))
        .map_err(|error| format!("failed to read {path}: {error}"))?;
    let values = yaml::read(&text)
        .map_err(|error| format!("failed to parse {path}: {}", error_chain(&error)))?;
    match <[Value; 1]>::try_from(values) {
        Ok([Value::Object(object)]) => Ok(object),
        _ => Err(format!("{path} must hold exactly one object")),
    }
}

/// Returns the objects by plugin.
pub fn by_plugin(objects: &[PluginObject]) -> BTreeMap<String, Map<String, Value>> {
    objects
        .iter()
        .map(|object| (object.plugin.clone(), object.value.clone()))
        .collect()
}
