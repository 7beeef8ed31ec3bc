//! Values against the schema: types, ranges, lengths, patterns, enumerations and alternatives.
//!
//! The `jsonschema` crate validates. Here the CustomResourceDefinition's dialect is turned into JSON schema, and what the
//! crate finds into the API server's words.

mod convert;
mod score;
mod translate;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use super::{cause::Cause, format};

/// A schema ready to validate values.
#[derive(Debug)]
pub(super) struct Structure {
    raw: Value,
    validator: Validator,
}

impl Structure {
    /// Compiles a schema; the error is a JSON pointer into it and what is wrong there.
    pub(super) fn new(raw: &Value) -> Result<Self, (String, String)> {
        let options = jsonschema::options()
            .with_pattern_options(PatternOptions::regex())
            .should_ignore_unknown_formats(true)
            .with_keyword(convert::RANGE, convert::range);
        let validator = format::register(options)
            .build(&convert::schema(raw))
            .map_err(|error| (error.instance_path().to_string(), error.to_string()))?;
        Ok(Self {
            raw: raw.clone(),
            validator,
        })
    }

    /// Everything that is wrong with an object.
    pub(super) fn check(&self, object: &Value) -> Vec<Cause> {
        translate::causes(self.validator.iter_errors(object), &self.raw, object)
    }
}
