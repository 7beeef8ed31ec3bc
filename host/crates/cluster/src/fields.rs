//! A JSON object's fields as raw text, in order.
//!
//! Values are not parsed: an object with many kilobytes is split into a few slices, so most bytes are only copied.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The initial capacity: most objects and their metadata have fewer fields.
const FIELDS: usize = 16;

/// One JSON object's fields; the values borrow from the text.
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'a> Fields<'a> {
    /// Splits a JSON object.
    pub(super) fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Splits a JSON object, or `null`, which has no fields.
    pub(super) fn parse_nullable(text: &'a str) -> Result<Self, serde_json::Error> {
        let fields: Option<Self> = serde_json::from_str(text)?;
        Ok(fields.unwrap_or_else(|| Self(Vec::new())))
    }

    /// Returns every name with the value's text.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
    }

    /// The length of [`text`](Self::text) if no name has escapes.
    pub(super) fn bytes(&self) -> usize {
        // A colon, a comma or brace, two quotes.
        let bytes = |(name, value): (&str, &str)| name.len() + value.len() + 4;
        1 + self.iter().map(bytes).sum::<usize>()
    }

    /// Returns all fields as a JSON object.
    pub(super) fn text(&self) -> String {
        let mut out = JsonWriter::with_capacity(self.bytes());
        out.begin();
        self.iter().for_each(|(name, value)| out.raw(name, value));
        out.end();
        out.finish()
    }

    /// One value's text.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.iter()
            .find_map(|(field, value)| (field == name).then_some(value))
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let split = Split::<IgnoredAny>::on(None);
        Ok(deserializer.deserialize_map(split)?.0)
    }
}

/// An object from the API server, split together with the metadata, so that the text is scanned only once.
pub(super) struct ObjectFields<'a> {
    /// All fields but `metadata`.
    pub(super) rest: Fields<'a>,
    /// None without metadata.
    pub(super) metadata: Option<MetadataFields<'a>>,
}

/// An object's metadata.
pub(super) struct MetadataFields<'a> {
    /// All fields but `managedFields`.
    pub(super) rest: Fields<'a>,
    /// The entries for all field managers.
    pub(super) managed: Vec<RawManagedEntry<'a>>,
}

/// An entry in `managedFields`, without the time, which changes with every write even if no field does.
#[derive(Deserialize, Serialize)]
pub(super) struct RawManagedEntry<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub(super) manager: Option<Text<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub(super) operation: Option<Text<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub(super) subresource: Option<Text<'a>>,
    #[serde(borrow, rename = "fieldsV1", skip_serializing_if = "Option::is_none")]
    pub(super) fields: Option<&'a RawValue>,
}

impl<'a, 'de: 'a> Deserialize<'de> for ObjectFields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (rest, metadata) = deserializer.deserialize_map(Split::on(Some("metadata")))?;
        Ok(Self { rest, metadata })
    }
}

impl<'a, 'de: 'a> Deserialize<'de> for MetadataFields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let split = Split::<Option<Vec<RawManagedEntry<'_>>>>::on(Some("managedFields"));
        let (rest, managed) = deserializer.deserialize_map(split)?;
        Ok(Self {
            rest,
            managed: managed.flatten().unwrap_or_default(),
        })
    }
}

/// Deserializes one named field, and keeps all others as raw text.
struct Split<T> {
    on: Option<&'static str>,
    value: PhantomData<T>,
}

impl<T> Split<T> {
    const fn on(on: Option<&'static str>) -> Self {
        let value = PhantomData;
        Self { on, value }
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Split<T> {
    type Value = (Fields<'de>, Option<T>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut rest = Vec::with_capacity(FIELDS);
        let mut value = None;
        while let Some(Text(name)) = map.next_key()? {
            if self.on == Some(&*name) {
                value = Some(map.next_value()?);
            } else {
                let raw: &RawValue = map.next_value()?;
                rest.push((name, raw.get()));
            }
        }
        Ok((Fields(rest), value))
    }
}

/// A string that borrows from the text unless it has escapes.
#[derive(Deserialize, Serialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// Writes JSON objects field by field.
pub(super) struct JsonWriter {
    text: String,
    open: bool,
}

impl JsonWriter {
    /// Creates a writer with this capacity.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self {
            text: String::with_capacity(bytes),
            open: false,
        }
    }

    /// Opens an object: the document, or the value after [`name`](Self::name).
    pub(super) fn begin(&mut self) {
        self.text.push('{');
        self.open = true;
    }

    /// Closes the object opened last.
    pub(super) fn end(&mut self) {
        self.text.push('}');
        // Also after an empty object: the next name belongs to the object around it and needs a comma.
        self.open = false;
    }

    /// Writes the next field's name; the value must follow.
    pub(super) fn name(&mut self, name: &str) {
        if !self.open {
            self.text.push(',');
        }
        self.open = false;
        self.string(name);
        self.text.push(':');
    }

    /// Writes a field whose value is JSON text.
    pub(super) fn raw(&mut self, name: &str, value: &str) {
        self.name(name);
        self.value(value);
    }

    /// Writes a value that is JSON text.
    pub(super) fn value(&mut self, value: &str) {
        self.text.push_str(value);
    }

    /// Writes a string value.
    pub(super) fn string(&mut self, text: &str) {
        let plain = |c: u8| c >= 0x20 && c != b'"' && c != b'\\';
        // Names, UIDs and hashes need no escapes, and serde_json would copy them twice.
        if text.bytes().all(plain) {
            self.text.push('"');
            self.text.push_str(text);
            self.text.push('"');
        } else {
            self.text
                .push_str(&serde_json::Value::from(text).to_string());
        }
    }

    /// The number of written bytes.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// The text.
    pub(super) fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_and_writes_back() {
        let text = r#"{"a":1,"b\"c":{"x":[1,2]},"d":"e\n"}"#;
        let fields = Fields::parse(text).unwrap();
        assert_eq!(fields.text(), text);
    }

    #[test]
    fn an_empty_object_as_a_value_keeps_the_commas_right() {
        let mut out = JsonWriter::with_capacity(16);
        out.begin();
        out.name("a");
        out.begin();
        out.end();
        out.raw("b", "2");
        out.end();
        assert_eq!(out.finish(), r#"{"a":{},"b":2}"#);
    }

    #[test]
    fn null_has_no_fields() {
        assert_eq!(Fields::parse_nullable("null").unwrap().iter().count(), 0);
        assert!(Fields::parse("null").is_err());
    }
}
