//! Parsers for values that several flags share.
//!
//! clap prefixes each message with the flag and the value, so a message only has the cause and the remedy.

use std::{
    env, fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::builder::{PathBufValueParser, StringValueParser, TypedValueParser};
use innkeeper_model::{Selector, error_chain, parse_selector, syntax::is_dns_label};
use innkeeper_source::{Proxies, PublicKey, SigningKey};

use crate::file;

/// A text in PEM form.
pub type Pem = Vec<u8>;

/// Parses whole seconds within the range, optionally with a unit: s, m, h or d.
pub fn seconds(range: RangeInclusive<u64>) -> impl TypedValueParser<Value = Duration> {
    StringValueParser::new().try_map(move |text| {
        let number = text.trim_end_matches(['s', 'm', 'h', 'd']);
        let unit = match text.strip_prefix(number) {
            Some("" | "s") => Some(1),
            Some("m") => Some(60),
            Some("h") => Some(3_600),
            Some("d") => Some(86_400),
            _ => None,
        };
        let seconds = unit.and_then(|unit| number.parse::<u64>().ok()?.checked_mul(unit));
        seconds
            .filter(|seconds| range.contains(seconds))
            .map(Duration::from_secs)
            .ok_or_else(|| {
                format!(
                    "give {} to {} seconds, also with a unit, for example 90s, 15m, 10h or 2d",
                    range.start(),
                    range.end()
                )
            })
    })
}

/// Parses a DNS label: the name of a namespace, an account, or a Service.
pub fn dns_label(text: &str) -> Result<String, String> {
    if is_dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err(
            "use at most 63 lower-case letters, digits and dashes, starting and ending with a letter or digit"
                .to_owned(),
        )
    }
}

/// Parses a label selector, except one that selects everything.
pub fn selector(text: &str) -> Result<Selector, String> {
    match parse_selector(text.trim()) {
        Ok(selector) if selector.selects_all() => {
            Err("it selects everything: omit the flag to serve all Plugins".to_owned())
        }
        Ok(selector) => Ok(selector),
        Err(error) => Err(error_chain(&error).to_string()),
    }
}

/// Reads a file with trusted authorities.
pub fn authorities() -> impl TypedValueParser<Value = Pem> {
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

    PathBufValueParser::new().try_map(|path| {
        let pem = read_file(&path)?;
        // Without this check, a host would report the empty file late or never.
        if pem.windows(BEGIN.len()).any(|part| part == BEGIN) {
            Ok(pem)
        } else {
            Err("it contains no certificate: give the authorities as PEM".to_owned())
        }
    })
}

/// Reads a file with a public key.
pub fn public_key() -> impl TypedValueParser<Value = PublicKey> {
    PathBufValueParser::new().try_map(|path| {
        let text = read_text(&path)?;
        PublicKey::from_pem(&text).map_err(|error| error_chain(&error).to_string())
    })
}

/// Reads a file with a private key.
pub fn private_key() -> impl TypedValueParser<Value = Arc<SigningKey>> {
    PathBufValueParser::new().try_map(|path| {
        let text = read_text(&path)?;
        SigningKey::from_pem(&text)
            .map(Arc::new)
            .map_err(|error| error_chain(&error).to_string())
    })
}

/// Lists the plugins in a directory in alphabetical order.
pub fn wasm_files() -> impl TypedValueParser<Value = Vec<PathBuf>> {
    let list = |path: &Path| -> std::io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(path)? {
            let file = entry?.path();
            if file
                .extension()
                .is_some_and(|extension| extension == "wasm")
            {
                files.push(file);
            }
        }
        files.sort();
        Ok(files)
    };
    PathBufValueParser::new().try_map(move |path| match list(&path) {
        Ok(files) if files.is_empty() => Err("it contains no file that ends in .wasm".to_owned()),
        Ok(files) => Ok(files),
        Err(error) => Err(format!("failed to read the directory: {error}")),
    })
}

/// Reads a flag's file, up to [`INPUT_BYTES_MAX`](file::INPUT_BYTES_MAX).
pub fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    fs::File::open(path)
        .and_then(|input| file::read_within(input, file::INPUT_BYTES_MAX))
        .map_err(|error| format!("failed to read the file: {error}"))
}

/// Reads a flag's file as text.
pub fn read_text(path: &Path) -> Result<String, String> {
    file::read_text(path).map_err(|error| format!("failed to read the file: {error}"))
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ResultFormat {
    /// Lines of text.
    Text,
    /// One JSON object.
    Json,
}

/// Returns the proxies from the environment.
pub fn proxies() -> Proxies {
    Proxies {
        https: proxy("HTTPS_PROXY"),
        http: proxy("HTTP_PROXY"),
        no_proxy: proxy("NO_PROXY"),
    }
}

/// Returns a variable's value; the name may also be in lower case.
#[expect(
    clippy::disallowed_methods,
    reason = "only flags and their defaults come from the environment"
)]
fn proxy(name: &str) -> Option<String> {
    env::var(name)
        .or_else(|_| env::var(name.to_lowercase()))
        .ok()
        // As in curl and Go, an empty variable names no proxy.
        .filter(|value| !value.is_empty())
}

/// Returns the default directory for compiled plugins; empty without a home directory.
#[expect(
    clippy::disallowed_methods,
    reason = "only flags and their defaults come from the environment"
)]
pub fn default_cache_dir() -> PathBuf {
    let directory = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            // XDG's specification ignores relative paths.
            .filter(|path| path.is_absolute())
    };
    directory("XDG_CACHE_HOME")
        .or_else(|| directory("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("innkeeper"))
        .unwrap_or_default()
}
