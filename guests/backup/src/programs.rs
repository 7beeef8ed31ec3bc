//! The programs whose command lines contain tenants' texts, and the options that tenants may use.
//!
//! Each program has options that run code or access any file, in more spellings than a list could name. So each table
//! lists harmless options, with the form of their values; others are refused. The tables follow the manuals of the
//! programs in the gobackup image.

use crate::api::Volume;

mod clients;
mod mysql;
pub(crate) mod openssl;
mod postgresql;

pub(crate) use clients::{ETCDCTL, GBAK, MONGODUMP, REDIS_CLI, SQLPACKAGE};
pub(crate) use mysql::{MARIADB_BACKUP, MYSQLDUMP, whole};
pub(crate) use openssl::OPENSSL;
pub(crate) use postgresql::{PG_DUMP, PG_DUMPALL};

/// Maximum length of arguments in bytes.
const ARGUMENTS_MAX: usize = 4096;

/// Maximum length of a value in bytes.
const VALUE_MAX: usize = 1024;

/// The length to which a message cuts an option, in characters.
const SHOWN_MAX: usize = 64;

/// Directory with an image's certificates, which options may name without a mounted volume.
const CERTIFICATES: &str = "/etc/ssl";

/// Options with blanks between them, by the form of their values.
type Options = &'static [(Value, &'static str)];

/// A program.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    syntax: Syntax,
    /// Options that run no code and only read the tenant's files, by the form of their values.
    options: Options,
    /// True for further options without a value.
    is_flag: fn(&str) -> bool,
}

impl Program {
    const fn new(name: &'static str, syntax: Syntax, options: Options) -> Self {
        Self {
            name,
            syntax,
            options,
            is_flag: |_| false,
        }
    }
}

/// How a program takes an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syntax {
    /// `--name=value`, `--name value`, `-n value` or `-nvalue`.
    Getopt,
    /// Like `Getopt`, with underscores for dashes, and `skip-`, `disable-` and `enable-` before a switch.
    MySql,
    /// `-name value`.
    Words,
    /// `/name:value`.
    Colon,
}

/// Form of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// No value.
    None,
    /// None, or a boolean in the same word.
    Switch,
    /// A number within these bounds.
    Number(u64, u64),
    /// None, or a number within these bounds in the same word.
    OptionalNumber(u64, u64),
    /// Number of bytes, with an optional unit such as `M`.
    Size,
    /// One of these words, in any case.
    Choice(&'static str),
    /// A name or a pattern, which is no option, no connection string and no URL.
    Name,
    /// Any text that is no option.
    Text,
    /// File or directory inside a parent's mount, or a certificate in the image.
    Path,
}

impl Value {
    /// Returns true if the value is the next word unless it is in the same one.
    fn is_required(self) -> bool {
        !matches!(self, Self::None | Self::Switch | Self::OptionalNumber(..))
    }

    fn accepts(self, value: &str, volumes: &[Volume]) -> bool {
        let is_number = |min, max| {
            value.bytes().all(|byte| byte.is_ascii_digit())
                && value
                    .parse::<u64>()
                    .is_ok_and(|number| (min..=max).contains(&number))
        };
        match self {
            Self::None => false,
            Self::Switch => contains_ignoring_case("0 1 true false on off", value),
            Self::Number(min, max) | Self::OptionalNumber(min, max) => is_number(min, max),
            Self::Size => is_size(value),
            Self::Choice(choices) => contains_ignoring_case(choices, value),
            Self::Name => !value.is_empty() && !value.starts_with('-') && !is_connection(value),
            Self::Text => !value.is_empty(),
            Self::Path => {
                is_mounted(value, volumes) || is_below(value, CERTIFICATES) && !is_climbing(value)
            }
        }
    }

    /// What the value must be.
    fn expected(self) -> String {
        match self {
            Self::None => "absent".to_owned(),
            Self::Switch => "true or false, after an equals sign".to_owned(),
            Self::Number(min, max) | Self::OptionalNumber(min, max) => {
                format!("a number from {min} to {max}")
            }
            Self::Size => "a number, with one of the units k, M and G or none".to_owned(),
            Self::Choice(choices) => format!("one of {}", choices.replace(' ', ", ")),
            Self::Name => "a name".to_owned(),
            Self::Text => "a text".to_owned(),
            Self::Path => {
                format!("a path inside a mount in spec.volumes, or below {CERTIFICATES}")
            }
        }
    }
}

/// Returns true if one of these words is a value.
fn contains_ignoring_case(words: &str, value: &str) -> bool {
    words
        .split(' ')
        .any(|word| word.eq_ignore_ascii_case(value))
}

/// Returns true for a number with an optional unit, as MySQL clients read it.
fn is_size(value: &str) -> bool {
    let digits = value.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let unit = &value[digits.len()..];
    let is_unit =
        unit.is_empty() || contains_ignoring_case("B K KB KIB M MB MIB G GB GIB T TB TIB", unit);
    is_unit && (1..=18).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Units of `split`, which is stricter than MySQL clients.
pub(crate) const CHUNK_UNITS: &[&str] = &[
    "", "b", "k", "kB", "kiB", "K", "KB", "KiB", "m", "mB", "miB", "M", "MB", "MiB", "G", "GB",
    "GiB", "T", "TB", "TiB",
];

/// Returns true for a chunk size as `split` reads it.
pub(crate) fn is_chunk_size(value: &str) -> bool {
    let unit = value.trim_start_matches(|character: char| character.is_ascii_digit());
    let number = value[..value.len() - unit.len()].parse::<u64>();
    // With TiB the product stays within 63 bits.
    let max = if unit.is_empty() {
        u64::MAX >> 1
    } else {
        1 << 22
    };
    CHUNK_UNITS.contains(&unit) && number.is_ok_and(|number| (1..=max).contains(&number))
}

/// Returns true for a connection string or URL instead of a name.
fn is_connection(value: &str) -> bool {
    value.contains('=') || value.contains("://")
}

fn is_climbing(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// Returns true if a path is inside a parent's mount.
pub(crate) fn is_mounted(path: &str, volumes: &[Volume]) -> bool {
    !is_climbing(path) && volumes.iter().any(|volume| volume.holds(path))
}

/// Checks a tenant's arguments, which gobackup splits at ASCII white space, without quotes.
///
/// # Errors
///
/// The first option that is not in the table, or whose value has the wrong form. The message never shows a value, which
/// may be a password.
pub(crate) fn check(program: &Program, arguments: &str, volumes: &[Volume]) -> Result<(), String> {
    if arguments.len() > ARGUMENTS_MAX {
        return Err(format!("has more than {ARGUMENTS_MAX} bytes"));
    }
    let mut words = arguments.split_ascii_whitespace().peekable();
    while let Some(word) = words.next() {
        if (program.is_flag)(word) {
            continue;
        }
        let Some((value, inline)) = option(program, word) else {
            return Err(format!(
                "{} is not among the options of {} that run no code and read no file",
                shown(program, word),
                program.name
            ));
        };
        let inline = match inline {
            None if value.is_required() => Some(
                words
                    .next_if(|word| !word.starts_with('-'))
                    .unwrap_or_default(),
            ),
            inline => inline,
        };
        let is_good = |inline: &str| inline.len() <= VALUE_MAX && value.accepts(inline, volumes);
        if !inline.is_none_or(is_good) {
            return Err(format!(
                "the value of {} is not {}",
                shown(program, word),
                value.expected()
            ));
        }
    }
    Ok(())
}

/// Returns the form of an option's value, and the value in the same word.
fn option<'a>(program: &Program, word: &'a str) -> Option<(Value, Option<&'a str>)> {
    let (name, inline) = parts(program, word);
    let value = find(program, name)?;
    let is_short = inline.is_some() && is_short(program, word);
    (!is_short || value.is_required()).then_some((value, inline))
}

/// Returns an option's name, and the value in the same word.
fn parts<'a>(program: &Program, word: &'a str) -> (&'a str, Option<&'a str>) {
    let parts = match program.syntax {
        Syntax::Getopt | Syntax::MySql if is_short(program, word) => word
            .split_at_checked(2)
            .filter(|(_, rest)| !rest.is_empty()),
        Syntax::Getopt | Syntax::MySql => word.split_once('='),
        // Properties are written `/p:name=value`.
        Syntax::Colon if word.starts_with("/p:") => word.split_once('='),
        Syntax::Colon => word.split_once(':'),
        Syntax::Words => None,
    };
    parts.map_or((word, None), |(name, value)| (name, Some(value)))
}

fn is_short(program: &Program, word: &str) -> bool {
    matches!(program.syntax, Syntax::Getopt | Syntax::MySql)
        && word.starts_with('-')
        && !word.starts_with("--")
}

/// Returns the form of an option's value.
fn find(program: &Program, name: &str) -> Option<Value> {
    let listed = |name: &str| {
        let mut options = program.options.iter();
        let (value, _) =
            options.find(|(_, names)| names.split(' ').any(|option| option == name))?;
        Some(*value)
    };
    if program.syntax != Syntax::MySql {
        return listed(name);
    }
    let name = name.replace('_', "-");
    listed(&name).or_else(|| {
        let bare = ["--skip-", "--disable-", "--enable-"]
            .iter()
            .find_map(|prefix| name.strip_prefix(prefix))?;
        listed(&format!("--{bare}")).filter(|value| *value == Value::Switch)
    })
}

/// Returns a word for messages: the option's name, without a value, which may be a password.
fn shown(program: &Program, word: &str) -> String {
    let (name, _) = parts(program, word);
    // A one-letter flag with more text.
    if is_short(program, word) && find(program, name).is_some_and(|value| !value.is_required()) {
        return word.chars().take(SHOWN_MAX).collect();
    }
    // openssl takes a value after an equals sign too.
    name.split('=')
        .next()
        .unwrap_or_default()
        .chars()
        .take(SHOWN_MAX)
        .collect()
}

/// Returns each option of a program with each listed value, or the smallest number.
#[cfg(test)]
pub(crate) fn samples(program: &Program) -> Vec<String> {
    let values = |value: Value| match value {
        Value::None | Value::Switch => vec![String::new()],
        Value::Number(min, _) => vec![format!(" {min}")],
        Value::Choice(choices) => choices
            .split(' ')
            .map(|choice| format!(" {choice}"))
            .collect(),
        _ => Vec::new(),
    };
    let words = program.options.iter().flat_map(|(value, names)| {
        let values = values(*value);
        names.split(' ').flat_map(move |name| {
            values
                .clone()
                .into_iter()
                .map(move |value| format!("{name}{value}"))
        })
    });
    words.collect()
}
