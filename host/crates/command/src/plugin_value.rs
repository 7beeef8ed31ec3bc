//! Flags that give a value to one plugin, as PLUGIN=VALUE.

use std::{collections::BTreeMap, path::Path};

use innkeeper_model::{error_chain, yaml};
use serde_json::{Map, Value};

use crate::{Exit, Failure, file};

/// The value that a flag of the form PLUGIN=VALUE gives to one plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginValue<T> {
    /// The name of the plugin.
    pub plugin: String,
    /// The value in the words of the user.
    given: String,
    /// The value.
    pub value: T,
}

impl<T> PluginValue<T> {
    /// Parses PLUGIN=VALUE, of this form.
    pub fn parse(
        text: &str,
        form: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Self, String> {
        match text.split_once('=') {
            Some((plugin, given)) if !plugin.is_empty() && !given.is_empty() => Ok(Self {
                plugin: plugin.to_owned(),
                given: given.to_owned(),
                value: parse(given)?,
            }),
            _ => Err(format!("write it as {form}")),
        }
    }

    /// Checks that the flag gives each plugin at most one value.
    pub fn check_unique(flag: &'static str, given: &[Self]) -> Result<(), Failure> {
        let mut known = BTreeMap::new();
        for one in given {
            if let Some(first) = known.insert(&one.plugin, &one.given) {
                let Self { plugin, given, .. } = one;
                let message = format!(
                    "{flag} names plugin {plugin} twice, with {first} and {given}: give one of them"
                );
                return Err(Failure::new(Exit::Usage, message));
            }
        }
        Ok(())
    }
}

/// The object of a file for one plugin.
pub type PluginObject = PluginValue<Map<String, Value>>;

/// Parses PLUGIN=FILE and reads the file.
pub fn plugin_object(text: &str) -> Result<PluginObject, String> {
    PluginValue::parse(text, "PLUGIN=FILE", object_in)
}

/// Reads a YAML or JSON file with one object.
pub fn object_in(path: &str) -> Result<Map<String, Value>, String> {
    let text = file::read_text(Path::new(path));
    let text = text.map_err(|error| format!("failed to read {path}: {error}"));
    let values = yaml::read(&text?)
        .map_err(|error| format!("failed to parse {path}: {}", error_chain(&error)))?;
    match <[Value; 1]>::try_from(values) {
        Ok([Value::Object(object)]) => Ok(object),
        _ => Err(format!("{path} must hold exactly one object")),
    }
}

/// Returns the objects by plugin.
pub fn by_plugin(given: &[PluginObject]) -> BTreeMap<String, Map<String, Value>> {
    let pair = |one: &PluginObject| (one.plugin.clone(), one.value.clone());
    given.iter().map(pair).collect()
}
