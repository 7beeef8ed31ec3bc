//! The configuration of gobackup, from the parent and what it refers to.
//!
//! It holds no credential, neither a Secret's nor one that is written in clear text: both become
//! variables, which the kubelet fills.

use std::collections::BTreeSet;

use crate::{
    api::{Archive, Compression, Encryption, Parent, Split},
    references::Related,
    related::{BackupModelSpec, SecretKey},
    status::Warning,
    stop::Stop,
};

mod entry;
mod yaml;

#[cfg(test)]
mod tests;

use yaml::{Node, quoted};

/// A credential that the kubelet hands to gobackup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credential {
    /// The variable, or the name of the file; in the child Secret also the key.
    pub(crate) name: String,
    pub(crate) origin: Origin,
    /// Keys of several lines cannot be variables.
    pub(crate) is_file: bool,
}

/// Where a credential comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Written in clear text in a parent or related object; goes into the child Secret.
    Clear(String),
    /// A user's Secret.
    Secret(SecretKey),
}

/// A storage of type local.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalStorage {
    /// The key in the configuration.
    pub(crate) key: String,
    pub(crate) path: String,
}

/// Where keys of several lines are mounted.
pub(crate) const KEYS: &str = "/etc/gobackup/keys";

/// The configuration and what it needs around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rendered {
    /// `gobackup.yml`.
    pub(crate) text: String,
    pub(crate) credentials: Vec<Credential>,
    pub(crate) warnings: Vec<Warning>,
    /// The key of the model.
    pub(crate) model: String,
    /// The keys of the storages, in the order of the references.
    pub(crate) storages: Vec<String>,
    pub(crate) local: Vec<LocalStorage>,
    /// Storages with `keep` that cannot give back what gobackup remembers.
    pub(crate) forgetful: Vec<String>,
}

/// Blocks of the parent, else of the model.
pub(crate) struct Blocks<'a> {
    pub(crate) description: Option<&'a String>,
    pub(crate) before_script: Option<&'a String>,
    pub(crate) after_script: Option<&'a String>,
    pub(crate) compress_with: Option<&'a Compression>,
    pub(crate) encode_with: Option<&'a Encryption>,
    pub(crate) split_with: Option<&'a Split>,
    pub(crate) archive: Option<&'a Archive>,
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(parent: &'a Parent, model: &'a BackupModelSpec) -> Self {
        let spec = &parent.spec;
        Self {
            description: spec.description.as_ref().or(model.description.as_ref()),
            before_script: spec.before_script.as_ref().or(model.before_script.as_ref()),
            after_script: spec.after_script.as_ref().or(model.after_script.as_ref()),
            compress_with: spec.compress_with.as_ref().or(model.compress_with.as_ref()),
            encode_with: spec.encode_with.as_ref().or(model.encode_with.as_ref()),
            split_with: spec.split_with.as_ref().or(model.split_with.as_ref()),
            archive: spec.archive.as_ref().or(model.archive.as_ref()),
        }
    }
}

/// gobackup's name of a compression; none for one that it does not know.
pub(crate) fn compression(type_: &str) -> Option<&str> {
    const KNOWN: &[&str] = &[
        "gz", "tgz", "taz", "tar.gz", "Z", "taZ", "tar.Z", "bz2", "tbz", "tbz2", "tar.bz2", "lz",
        "tar.lz", "lzma", "tlz", "tar.lzma", "lzo", "tar.lzo", "xz", "txz", "tar.xz", "zst",
        "tzst", "tar.zst", "tar",
    ];
    match type_ {
        "gzip" => Some("tgz"),
        "bzip2" => Some("tbz2"),
        "zstd" => Some("tar.zst"),
        _ => KNOWN.contains(&type_).then_some(type_),
    }
}

/// Renders; the blocks have been validated.
pub(crate) fn render(
    name: &str,
    parent: &Parent,
    blocks: &Blocks<'_>,
    related: &Related,
) -> Result<Rendered, Stop> {
    let mut rendered = Rendered {
        model: key_of(name),
        warnings: related.warnings.clone(),
        ..Default::default()
    };
    let mut model = head(blocks, &mut rendered);
    let mut databases = Vec::new();
    let mut taken = BTreeSet::new();
    for (index, source) in related.databases.iter().enumerate() {
        let entry = entry::database(source, index, parent, &mut rendered)?;
        databases.push((unique(&source.name, &mut taken), entry));
    }
    let mut storages = Vec::new();
    let mut default = None;
    let mut taken = BTreeSet::new();
    for (index, source) in related.storages.iter().enumerate() {
        let key = unique(&source.name, &mut taken);
        let entry = entry::storage(source, index, &key, &mut rendered)?;
        if parent.spec.default_storage.as_ref() == Some(&source.name) {
            default.get_or_insert_with(|| key.clone());
        }
        rendered.storages.push(key.clone());
        storages.push((key, entry));
    }
    let default = default.or_else(|| rendered.storages.first().cloned());
    if !databases.is_empty() {
        model.push(("databases".to_owned(), sorted(databases)));
    }
    if !storages.is_empty() {
        model.push(("storages".to_owned(), sorted(storages)));
    }
    if let Some(default) = default {
        model.push(("default_storage".to_owned(), Node::Text(default)));
    }
    let models = Node::Map(vec![(quoted(&rendered.model), Node::Map(model))]);
    rendered.text = yaml::write(vec![("models".to_owned(), models)], parent.spec.expand_env);
    Ok(rendered)
}

/// A name as a key of gobackup, which takes dots for levels.
fn key_of(name: &str) -> String {
    name.replace('.', "_")
}

/// A key that no earlier reference has.
fn unique(name: &str, taken: &mut BTreeSet<String>) -> String {
    let wanted = key_of(name);
    let mut key = wanted.clone();
    let mut number = 2;
    while !taken.insert(key.clone()) {
        key = format!("{wanted}_{number}");
        number += 1;
    }
    key
}

fn sorted(mut entries: Vec<(String, Node)>) -> Node {
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let entries = entries.into_iter();
    Node::Map(entries.map(|(key, entry)| (quoted(&key), entry)).collect())
}

/// Everything before the databases.
fn head(blocks: &Blocks<'_>, rendered: &mut Rendered) -> Vec<(String, Node)> {
    let mut model = Vec::new();
    for (key, text) in [
        ("description", blocks.description),
        ("before_script", blocks.before_script),
        ("after_script", blocks.after_script),
    ] {
        push_text(&mut model, key, text);
    }
    let type_ = blocks.compress_with.and_then(|it| it.type_.as_deref());
    if let Some(given) = blocks.compress_with
        && let Some(type_) = type_.and_then(compression)
    {
        let mut map = vec![("type".to_owned(), Node::Text(type_.to_owned()))];
        push_text(&mut map, "args", given.args.as_ref());
        push_text(&mut map, "filename_format", given.filename_format.as_ref());
        model.push(("compress_with".to_owned(), Node::Map(map)));
    }
    if let Some(given) = blocks.encode_with.filter(|it| is_encrypting(it)) {
        let map = encryption(given, rendered);
        model.push(("encrypt_with".to_owned(), Node::Map(map)));
    }
    if let Some(given) = blocks.split_with {
        let map = vec![
            (
                "chunk_size".to_owned(),
                Node::Text(given.chunk_size.clone()),
            ),
            (
                "numeric_suffixes".to_owned(),
                Node::Plain(given.numeric_suffixes.unwrap_or(true).to_string()),
            ),
            (
                "suffix_length".to_owned(),
                Node::Plain(given.suffix_length.unwrap_or(3).to_string()),
            ),
        ];
        model.push(("split_with".to_owned(), Node::Map(map)));
    }
    if let Some(given) = blocks.archive {
        let mut map = Vec::new();
        if !given.excludes.is_empty() {
            map.push(("excludes".to_owned(), Node::Texts(given.excludes.clone())));
        }
        map.push(("includes".to_owned(), Node::Texts(given.includes.clone())));
        model.push(("archive".to_owned(), Node::Map(map)));
    }
    model
}

/// Whether a block asks for encryption.
pub(crate) fn is_encrypting(given: &Encryption) -> bool {
    given.type_.as_deref() == Some("openssl") || given.openssl == Some(true)
}

fn encryption(given: &Encryption, rendered: &mut Rendered) -> Vec<(String, Node)> {
    let mut map = vec![("type".to_owned(), Node::Text("openssl".to_owned()))];
    push_text(&mut map, "args", given.args.as_ref());
    if let Some(base64) = given.base64 {
        map.push(("base64".to_owned(), Node::Plain(base64.to_string())));
    }
    // gobackup's own spelling.
    push_text(&mut map, "chiper", given.cipher.as_ref());
    let origin = match (&given.password_ref, &given.password) {
        (Some(secret), _) => Origin::Secret(secret.clone()),
        (None, password) => {
            rendered.warnings.push(Warning::new(
                "ClearTextCredential",
                "encodeWith.password is written in clear text; use encodeWith.passwordRef",
            ));
            Origin::Clear(password.clone().unwrap_or_default())
        }
    };
    let name = "ENC_PASSWORD".to_owned();
    map.push(("password".to_owned(), Node::Variable(name.clone())));
    rendered.credentials.push(Credential {
        name,
        origin,
        is_file: false,
    });
    if let Some(salt) = given.salt {
        map.push(("salt".to_owned(), Node::Plain(salt.to_string())));
    }
    map
}

fn push_text(map: &mut Vec<(String, Node)>, key: &str, text: Option<&String>) {
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        map.push((key.to_owned(), Node::Text(text.clone())));
    }
}
