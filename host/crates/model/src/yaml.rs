//! Conversion between YAML or JSON text and values, with the rules of `kubectl`.
//!
//! This module does not open files and does not know Kubernetes objects.

use serde_json::Value;

use super::foreign::{escape_yaml, is_invisible};

/// A failure to read or write YAML.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text does not parse; the source names line and column.
    #[error("failed to read YAML")]
    Read(#[source] MalformedYaml),
    /// A value cannot be written.
    #[error("failed to write YAML")]
    Write(#[source] serde_saphyr::SerializeError),
}

/// A text that does not parse, with line and column, in words for the author.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MalformedYaml(String);

impl MalformedYaml {
    fn new(error: &serde_saphyr::Error) -> Self {
        let text = error.to_string();
        if let serde_saphyr::Error::DuplicateMappingKey {
            key: Some(key),
            location,
        } = error.without_snippet()
        {
            let line = location.line();
            let column = location.column();
            return Self(format!(
                "line {line} column {column}: the key \"{key}\" is stated twice: state it once"
            ));
        }
        // Such a text advises the programmer to set an option of the parser, which the author of a file cannot do.
        if text.contains("Options") {
            return Self(error.render_with_formatter(&serde_saphyr::UserMessageFormatter));
        }
        Self(text)
    }
}

/// Reads all documents in a text, without the empty ones.
///
/// JSON is YAML. Numbers and booleans follow YAML 1.1 (`0644` is octal, `yes` is true), as in
/// `kubectl`.
pub fn read(text: &str) -> Result<Vec<Value>, Error> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|source| Error::Read(MalformedYaml::new(&source)))?;
    Ok(documents
        .into_iter()
        .filter(|document| !document.is_null())
        .map(without_whole_floats)
        .collect())
}

/// Converts whole floats such as `3.0` to the integer `3`, as `kubectl` encodes them.
fn without_whole_floats(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            // `kubectl` writes larger floats with an exponent.
            Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => format!("{float:.0}")
                .parse::<i64>()
                .map_or(Value::Number(number), Value::from),
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(without_whole_floats).collect(),
        Value::Object(map) => map
            .into_iter()
            .map(|(key, value)| (key, without_whole_floats(value)))
            .collect(),
        other => other,
    }
}

/// Writes values as YAML documents, with `---` between them.
///
/// Texts that YAML 1.1 would read as something else are quoted. Characters that deceive readers are escaped, except for
/// tabs; a document with invisible or bidirectional characters is written as JSON.
pub fn write(documents: &[Value]) -> Result<String, Error> {
    let options = serde_saphyr::ser_options! {
        // Folded lines would be correct YAML but hard to read.
        folded_wrap_chars: usize::MAX,
    };
    let mut text = String::new();
    for document in documents {
        if !text.is_empty() {
            text.push_str("---\n");
        }
        let json = format!("{document:#}\n");
        if json.contains(is_invisible) {
            // JSON is YAML, and the writer would leave these characters as they are, in names even without quotes.
            text += &escape_yaml(&json);
            continue;
        }
        text += &serde_saphyr::to_string_with_options(document, options.clone())
            .map_err(Error::Write)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;
    use crate::foreign::is_hidden_in_lines;

    #[test]
    fn reads_numbers_and_booleans_like_kubectl() {
        let text = "---\na: yes\nb: 0644\nc: '0644'\nd: 1.50\ne: 2001-01-01\nf: 1e3\ng: \"on\"\nh: 12_000\n---\n# empty\n---\n{\"x\": [1, null, \"é\"]}\n";
        assert_eq!(
            read(text).unwrap(),
            [
                json!({"a": true, "b": 420, "c": "0644", "d": 1.5, "e": "2001-01-01", "f": 1000, "g": "on", "h": 12000}),
                json!({"x": [1, null, "é"]}),
            ]
        );
    }

    #[test]
    fn a_key_that_is_stated_twice_is_told_to_the_author() {
        for (text, expected) in [
            (
                "spec:\n  size: 1\n  port: 2\n  size: 3\n",
                "line 4 column 3: the key \"size\" is stated twice: state it once",
            ),
            (
                "{\"a\": 1, \"a\": 2}",
                "line 1 column 10: the key \"a\" is stated twice: state it once",
            ),
        ] {
            let error = read(text).unwrap_err();
            let chain = crate::error_chain(&error).to_string();
            assert_eq!(chain, format!("failed to read YAML: {expected}"));
        }
        for text in ["? [a]\n: 1\n? [a]\n: 2\n", "a: !!binary /w==\n"] {
            if let Err(error) = read(text) {
                let chain = crate::error_chain(&error).to_string();
                assert!(!chain.contains("Options"), "{chain}");
            }
        }
    }

    #[test]
    fn written_values_read_back_unchanged() {
        let documents = [
            json!({
                "strings": ["yes", "on", "null", "~", "0644", "1e3", "1:30", "", " a", "a: b", "#", "- x", "=", "2001-01-01", "0x1f", ".5", "a\nb\n", "a\nb", "\ttab", "@at", "\u{85}", "{a}", "%", "!x", "&x", "*x"],
                "long": "word ".repeat(60),
                "numbers": [0, -1, 1.5, 1e300, u64::MAX, i64::MIN],
                "empty": [{}, [], null, true],
            }),
            json!([1]),
        ];
        let text = write(&documents).unwrap();
        assert_eq!(read(&text).unwrap(), documents, "{text}");
    }

    #[test]
    fn deceptive_characters_are_escaped_and_read_back() {
        let controls: String = (0..0xa0).filter_map(char::from_u32).collect();
        let invisible = "\u{200b}\u{202e}\u{2066}\u{2028}\u{feff}\u{e0041}";
        let with = |hostile: &str| {
            json!({
                "text": hostile,
                "lines": format!("a\n{hostile}\nb\n"),
                hostile: [hostile, {format!("a{hostile}"): {(hostile): null}}],
                "tabs": "\ta\n\tb\n",
            })
        };
        let documents = [
            with(&controls),
            with("\u{1b}\r"),
            with("\u{85}"),
            with(invisible),
            json!({"a": 1}),
        ];
        let text = write(&documents).unwrap();
        let hidden: Vec<char> = text.chars().filter(|c| is_hidden_in_lines(*c)).collect();
        assert_eq!(hidden, [], "{text}");
        assert_eq!(read(&text).unwrap(), documents, "{text}");
        assert!(text.ends_with("---\na: 1\n"), "{text}");
        // Only the YAML writer keeps them readable.
        assert!(text.contains("tabs: |"), "{text}");
    }

    #[test]
    fn writes_plainly() {
        let documents = [
            json!({"metadata": {"name": "web"}, "args": ["-m", "64"], "script": "a\nb\n"}),
            json!({"kind": "yes"}),
        ];
        expect![[r#"
            args:
            - -m
            - "64"
            metadata:
              name: web
            script: |
              a
              b
            ---
            kind: "yes"
        "#]]
        .assert_eq(&write(&documents).unwrap());
    }

    #[test]
    fn a_syntax_error_names_its_line() {
        let error = read("a: 1\nb: [\n").unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("line"), "{source}");
    }
}
