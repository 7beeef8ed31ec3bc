//! The page of error messages.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{Item, TAKES_ANY_TEXT, cell, check, items, sentence, table, without_links};
use crate::files::{Source, read};

/// The start of the remedy in the documentation of an error.
pub(super) const REMEDY: &str = " Remedy: ";

/// The words that start a remedy within a message.
const IMPERATIVES: [&str; 15] = [
    "apply", "build", "check", "copy", "do", "export", "give", "install", "join", "make",
    "restart", "restore", "run", "use", "write",
];

/// An error as the page shows it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    message: String,
    meaning: String,
    remedy: String,
}

impl Row {
    fn new(message: &str, docs: &str) -> Self {
        let docs = without_links(&cell(docs));
        let (meaning, remedy) = docs.split_once(REMEDY).unwrap_or((&docs, ""));
        let parts = [": ", "; ", ", "].map(|separator| message.split(separator).skip(1));
        let says_remedy = parts.into_iter().flatten().any(|part| {
            let first = part.split([' ', ':']).next().unwrap_or_default();
            IMPERATIVES.contains(&first)
        });
        let remedy = match remedy {
            "" if says_remedy => "In the message.",
            remedy => remedy,
        };
        Self {
            message: format!("`{}`", cell(message).replace('`', "'")),
            meaning: sentence(meaning),
            remedy: sentence(remedy),
        }
    }

    fn is_complete(&self) -> bool {
        // Text of code stands for a value that was not named.
        let is_message = !["{}", "\\", "join("]
            .iter()
            .any(|code| self.message.contains(code));
        is_message && !self.meaning.is_empty() && !self.remedy.is_empty()
    }
}

/// Returns the errors of a file: the message and the documentation of each variant.
fn messages(text: &str) -> Vec<Row> {
    let mut found = Vec::new();
    let (mut docs, mut message, mut is_message) = (String::new(), None, false);
    let mut attribute = String::new();
    for line in text.lines().map(str::trim) {
        if is_message || line.starts_with("#[error(") {
            attribute.push_str(line);
            attribute.push(' ');
            is_message = !line.ends_with(")]");
            if !is_message {
                message = shown(&std::mem::take(&mut attribute), text);
            }
        } else if let Some(doc) = line.strip_prefix("///") {
            docs.push(' ');
            docs.push_str(doc);
        } else if line.starts_with("#[") {
        } else {
            found.extend(message.take().map(|message| Row::new(&message, &docs)));
            docs.clear();
        }
    }
    found
}

/// Returns the message of an attribute `error` with a name for each value; none for one that shows another error, or
/// nothing but values.
fn shown(attribute: &str, file: &str) -> Option<String> {
    let (_, rest) = attribute.split_once('"')?;
    let rest = rest.replace("\\\"", "\u{0}");
    let (text, arguments) = rest.split_once('"')?;
    let mut arguments = arguments.trim_start_matches([',', ' ']).split(", ");
    let (mut message, mut rest, mut has_words) = (String::new(), text, false);
    while let Some((before, (value, after))) = rest
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    {
        let value = value.split(':').next().unwrap_or_default();
        let name = if value.is_empty() {
            name_of(arguments.next().unwrap_or_default())
        } else {
            value
        };
        message.push_str(before);
        match constant(name, file) {
            Some(text) => message.push_str(text),
            None if name.parse::<usize>().is_ok() => message.push_str("{…}"),
            None => write!(message, "{{{name}}}").expect(TAKES_ANY_TEXT),
        }
        has_words |= before.contains(' ') && before.contains(char::is_alphabetic);
        rest = after;
    }
    has_words |= rest.contains(' ') && rest.contains(char::is_alphabetic);
    message.push_str(rest);
    has_words.then(|| message.replace('\u{0}', "\"").replace("\\n", " "))
}

/// Returns a name for the value of an expression: `path` of `path.display()`, `backtrace` of `stack(backtrace)`; `0` for
/// one without a name.
fn name_of(expression: &str) -> &str {
    let expression = expression.strip_prefix("if ").unwrap_or(expression);
    let named = match expression.split_once('(') {
        Some((called, inner)) => called.rsplit_once('.').map_or(inner, |(named, _)| named),
        None => expression,
    };
    let name = named.rsplit('.').next().unwrap_or_default();
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let end = name.find(|c| !is_name(c)).unwrap_or(name.len());
    if end == 0 { "0" } else { &name[..end] }
}

/// Returns the value of a constant of the file, or of a public one that it imports.
fn constant<'a>(name: &str, file: &'a str) -> Option<&'a str> {
    if !name.starts_with(|c: char| c.is_ascii_uppercase()) {
        return None;
    }
    let imported = || {
        let definition = format!("pub const {name}: ");
        let mut texts = Source::all().iter().map(|source| &source.text);
        texts.find_map(|text| text.split_once(&definition))
    };
    let own = file.split_once(&format!("const {name}: "));
    let (_, rest) = own.or_else(imported)?;
    let (_, value) = rest.split(';').next()?.split_once("= ")?;
    Some(value.trim_matches('"'))
}

/// Returns the errors of writes, whose causes are a table in the code.
fn of_writes() -> Vec<Row> {
    let path = "host/crates/apply/src/error.rs";
    let text = read(path);
    let kinds = items(path);
    let words = text.split("fn words").nth(1);
    let words = words.and_then(|rest| rest.split("\n    }\n").next());
    let words = words.expect("the errors of writes have words");
    let causes = words.split("Self::").skip(1).filter_map(|arm| {
        let name = arm.split(|c: char| !c.is_alphanumeric()).next()?;
        let cause = arm.split('"').rev().nth(1)?;
        let is_kind = |item: &&Item| item.line.trim_end_matches([',', '{', ' ']) == name;
        let kind = kinds.iter().find(is_kind)?;
        let failed = if arm.contains("AMBIGUOUS") {
            "failed to learn the result of the attempt to"
        } else {
            "failed to"
        };
        let has_time = kind.line.ends_with('{');
        let time = if has_time { " {time}" } else { "" };
        let message = format!("{failed} {{write}}: {cause}{time}");
        Some(Row::new(&message, &format!(" {}", kind.docs)))
    });
    causes.collect()
}

#[test]
fn the_page_of_errors_is_up_to_date() {
    let mut crates: BTreeMap<&str, Vec<Row>> = BTreeMap::new();
    crates.insert("apply", of_writes());
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
        let rows = messages(&product.join("\n"));
        crates.entry(part).or_default().extend(rows);
    }
    let rows = crates.values().flatten();
    let incomplete = rows
        .filter(|row| !row.is_complete())
        .map(|row| format!("{row:?}"));
    let problem = "an error without a message as users see it, a meaning or a remedy";
    crate::assert_none(problem, incomplete.collect());
    let mut body = String::new();
    for (part, mut rows) in crates {
        rows.sort_unstable();
        rows.dedup();
        if !rows.is_empty() {
            let rows = rows
                .into_iter()
                .map(|row| [row.message, row.meaning, row.remedy]);
            write!(
                body,
                "## {part}\n\n{}\n",
                table(["message", "meaning", "remedy"], rows)
            )
            .expect(TAKES_ANY_TEXT);
        }
    }
    let opening = "This page is for those who have a message and look for its meaning and the way out.\n\
        An error is printed as `failed to DO THIS: CAUSE: CAUSE`: look for its first part, then for its last. Words in braces stand for values, `{…}` for a value without a name.\n\
        Messages that begin with the path of a field, such as `spec.limits.memory`, name the field, the problem and the remedy, and are not listed.\n\
        The tables follow the crates of the host; [troubleshooting](../../../deploy/docs/troubleshooting.md) explains the usual ones.";
    check("errors.md", "Errors", opening, &body);
}

#[test]
fn finds_the_messages_of_errors() {
    let text = "const LIMIT: usize = 3;\n/// It failed.\n///\n/// Remedy: Try {@} again.\n#[error(\n    \"failed to read {} and \\\"{0}\\\" in {LIMIT}: {}\", of.path.display(), join(all, \"; \")\n)]\nRead(String),\n/// Other.\n#[error(transparent)]\nOther(X),\n#[error(\"{message}\")]\nstruct Y {\n#[error(\"{path}: {problem}\")]\nZ,\n/// It is small.\n#[error(\"too small: make it larger\")]\nSmall,\n";
    let expected = [
        [
            "`failed to read {path} and \"{…}\" in 3: {all}`",
            "It failed.",
            "Try {@} again.",
        ],
        [
            "`too small: make it larger`",
            "It is small.",
            "In the message.",
        ],
    ];
    let found = messages(text).into_iter();
    let found: Vec<_> = found
        .map(|row| [row.message, row.meaning, row.remedy])
        .collect();
    assert_eq!(found, expected.map(|row| row.map(str::to_owned)));
}
