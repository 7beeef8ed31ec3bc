//! The page of error messages.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{TAKES_ANY_TEXT, cell, check, sentence, table, without_links};
use crate::files::Source;

/// Returns the messages of the errors of a file, each with the documentation of its variant.
fn messages(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let (mut docs, mut message, mut is_message) = (String::new(), None, false);
    let mut attribute = String::new();
    for line in text.lines().map(str::trim) {
        if is_message || line.starts_with("#[error(") {
            attribute.push_str(line);
            attribute.push(' ');
            is_message = !line.ends_with(")]");
            if !is_message {
                message = literal(&std::mem::take(&mut attribute));
            }
        } else if let Some(doc) = line.strip_prefix("///") {
            docs.push_str(doc);
        } else if line.starts_with("#[") {
        } else {
            if let Some(message) = message.take() {
                found.push((message, without_links(&cell(&docs))));
            }
            docs.clear();
        }
    }
    found
}

/// Returns the text of an attribute `error`; none for one that shows another error.
fn literal(attribute: &str) -> Option<String> {
    let (_, rest) = attribute.split_once('"')?;
    let (text, _) = rest.rsplit_once('"')?;
    let text = text.replace("\\\"", "\"").replace("\\n", " ");
    // A bare field is a message that was made elsewhere.
    let is_field = text.starts_with('{') && text.ends_with('}') && !text[1..].contains('{');
    (!is_field).then_some(text)
}

#[test]
fn the_page_of_errors_is_up_to_date() {
    let mut crates: BTreeMap<&str, Vec<[String; 2]>> = BTreeMap::new();
    for source in Source::all() {
        let Some(path) = source.path.strip_prefix("host/") else {
            continue;
        };
        if source.is_test_file() {
            continue;
        }
        let part = match path.strip_prefix("crates/") {
            Some(rest) => rest.split('/').next().unwrap_or_default(),
            None => "command line",
        };
        let product: Vec<&str> = source.text.lines().take(source.product_lines()).collect();
        let rows = messages(&product.join("\n")).into_iter();
        let rows = rows.map(|(message, docs)| {
            [
                format!("`{}`", cell(&message).replace('`', "'")),
                sentence(&docs),
            ]
        });
        crates.entry(part).or_default().extend(rows);
    }
    let mut body = String::new();
    for (part, mut rows) in crates {
        rows.sort_unstable();
        rows.dedup();
        if !rows.is_empty() {
            write!(
                body,
                "## {part}\n\n{}\n",
                table(["message", "meaning"], rows)
            )
            .expect(TAKES_ANY_TEXT);
        }
    }
    let opening = "This page is for those who have a message and look for its meaning.\n\
        An error is printed as `failed to DO THIS: CAUSE: CAUSE`: look for its first part. Words in braces stand for values.\n\
        The tables follow the crates of the host; [troubleshooting](../../../deploy/docs/troubleshooting.md) has the remedies for the usual ones.";
    check("errors.md", "Errors", opening, &body);
}

#[test]
fn finds_the_messages_of_errors() {
    let text = "/// It failed.\n#[error(\n    \"failed to read {0}\"\n)]\nRead(String),\n/// Other.\n#[error(transparent)]\nOther(X),\n#[error(\"{message}\")]\nstruct Y {\n";
    assert_eq!(
        messages(text),
        [("failed to read {0}".to_owned(), "It failed.".to_owned())]
    );
}
