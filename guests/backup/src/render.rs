//! Renders gobackup's configuration from the parent and the objects that it references.
//!
//! The configuration contains no credentials, neither from Secrets nor in clear text. They become environment variables
//! or files, which the kubelet fills.

use std::collections::BTreeSet;

use crate::{
    api::{Archive, ArchiveSettings, Compression, Encryption, Parent, SecretKey},
    references::Related,
    status::Warning,
    stop::Stop,
};

mod entry;
mod yaml;

#[cfg(test)]
mod tests;

pub(crate) use entry::{SHELL, is_given};
use yaml::{Node, quoted};

/// A credential that the kubelet passes to gobackup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credential {
    /// Name of the variable or file; in the child Secret also the key.
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) passing: Passing,
    /// Field, in the parent or a referenced object, with the credential or the Secret.
    pub(crate) field: String,
}

impl Credential {
    /// Returns true if the credential is mounted as a file.
    pub(crate) fn is_file(&self) -> bool {
        self.passing == Passing::File
    }
}

/// The way in which gobackup passes a credential on. It limits the value, which only the run can check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Passing {
    /// As a file. A multi-line value cannot be a variable, because the variable's block in the configuration would end
    /// at the first line.
    File,
    /// As a configuration value: one line.
    Value,
    /// As a word in a command line, which gobackup splits at white space: more words would be more arguments.
    Word,
    /// As a word that a program would take for an option if it began with a dash.
    Operand,
    /// As an operand in a command line that gobackup gives to a shell.
    Shell,
}

/// Where a credential comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Clear text in a parent or referenced object. The value goes into the child Secret.
    Clear(String),
    /// A key in the user's Secret.
    Secret(SecretKey),
}

/// A local storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalStorage {
    /// Object name.
    pub(crate) name: String,
    /// The key in the configuration.
    pub(crate) key: String,
    /// The storage's own path, where the run mounts a claim.
    pub(crate) mount: String,
    /// Directory of the archives, there or below.
    pub(crate) path: String,
}

/// The file of a SQLite database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SqliteFile {
    /// Kind and name of the object.
    pub(crate) name: String,
    pub(crate) path: String,
}

/// Directory of credential files.
pub(crate) const KEYS: &str = "/etc/gobackup/keys";

/// The configuration, with the data that the Pod and the report need besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rendered {
    /// `gobackup.yml`.
    pub(crate) text: String,
    pub(crate) credentials: Vec<Credential>,
    pub(crate) warnings: Vec<Warning>,
    /// The files to archive.
    pub(crate) archive: Archive,
    /// Key of the model in the configuration.
    pub(crate) model: String,
    /// Keys of the storages, in the references' order.
    pub(crate) storages: Vec<String>,
    pub(crate) local: Vec<LocalStorage>,
    /// Files of SQLite databases.
    pub(crate) sqlite: Vec<SqliteFile>,
    /// There are databases.
    pub(crate) has_dumps: bool,
    /// True if a storage has `keep`.
    pub(crate) has_keep: bool,
    /// Storages with `keep` from which gobackup cannot read the state file back.
    pub(crate) forgetful: Vec<String>,
}

/// gobackup's names for compressions.
pub(crate) const COMPRESSIONS: &[&str] = &[
    "gz", "tgz", "taz", "tar.gz", "Z", "taZ", "tar.Z", "bz2", "tbz", "tbz2", "tar.bz2", "lz",
    "tar.lz", "lzma", "tlz", "tar.lzma", "lzo", "tar.lzo", "xz", "txz", "tar.xz", "zst", "tzst",
    "tar.zst", "tar",
];

/// Other names for compressions, with gobackup's.
pub(crate) const COMPRESSION_ALIASES: &[(&str, &str)] =
    &[("gzip", "tgz"), ("bzip2", "tbz"), ("zstd", "tar.zst")];

/// Returns gobackup's name for a compression; none if gobackup does not support it.
pub(crate) fn compression(type_: &str) -> Option<&str> {
    COMPRESSION_ALIASES
        .iter()
        .find(|alias| alias.0 == type_)
        .map(|alias| alias.1)
        .or_else(|| COMPRESSIONS.contains(&type_).then_some(type_))
}

/// Renders the configuration. The settings have passed `validate`.
pub(crate) fn render(
    name: &str,
    parent: &Parent,
    settings: &ArchiveSettings,
    related: &Related,
) -> Result<Rendered, Stop> {
    let mut rendered = Rendered {
        model: key_of(name),
        warnings: related.warnings.clone(),
        ..Default::default()
    };
    let mut model = head(settings, &mut rendered);
    warn_about_image(parent, settings, &mut rendered);
    let databases = databases(parent, related, &mut rendered)?;
    let storages = storages(settings, related, &mut rendered)?;
    if !databases.is_empty() {
        model.push(("databases".to_owned(), sorted(databases)));
    }
    if !storages.is_empty() {
        model.push(("storages".to_owned(), sorted(storages)));
    }
    if let Some(storage) = default_storage(parent, related, &rendered) {
        model.push(("default_storage".to_owned(), Node::Text(storage)));
    }
    let mut notifiers = Vec::new();
    for (index, notifier) in settings.notifiers.iter().flatten().enumerate() {
        let entry = entry::notifier(notifier, index, &mut rendered)?;
        notifiers.push((notifier.name.clone(), entry));
    }
    if !notifiers.is_empty() {
        model.push(("notifiers".to_owned(), sorted(notifiers)));
    }
    let models = Node::Map(vec![(quoted(&rendered.model), Node::Map(model))]);
    rendered.text = yaml::write(vec![("models".to_owned(), models)], parent.spec.expand_env);
    Ok(rendered)
}

/// Warns about a compression whose program the default image lacks.
fn warn_about_image(parent: &Parent, settings: &ArchiveSettings, rendered: &mut Rendered) {
    let type_ = settings
        .compress_with
        .as_ref()
        .and_then(|compression| compression.type_.as_deref());
    if let Some(type_ @ ("Z" | "taZ" | "tar.Z")) = type_
        && parent.spec.image.is_none()
    {
        rendered.warnings.push(Warning::new(
            "TypeNotInImage",
            format!(
                "compressWith.type: the gobackup image has no program for {type_}; use tgz, or set \
                 spec.image to one that has compress"
            ),
        ));
    }
}

/// The entries of databases or storages by their keys.
type Entries = Vec<(String, Node)>;

fn databases(parent: &Parent, related: &Related, rendered: &mut Rendered) -> Result<Entries, Stop> {
    let keys = keys(related.databases.iter().map(|source| source.name.as_str()));
    rendered.has_dumps = !keys.is_empty();
    let mut entries = Vec::new();
    for (index, (source, key)) in related.databases.iter().zip(keys).enumerate() {
        let entry = entry::database(source, index, &key, parent, rendered)?;
        entries.push((key, entry));
    }
    Ok(entries)
}

fn storages(
    settings: &ArchiveSettings,
    related: &Related,
    rendered: &mut Rendered,
) -> Result<Entries, Stop> {
    rendered.storages = keys(related.storages.iter().map(|source| source.name.as_str()));
    let mut entries = Vec::new();
    for (index, source) in related.storages.iter().enumerate() {
        let type_ = source.type_.name;
        if settings.split_with.is_some() && matches!(type_, "ftp" | "sftp") {
            return Err(Stop::invalid_reference(format!(
                "{} {}: gobackup cannot store the chunks of splitWith in a storage of type {type_}; remove splitWith, or \
                 use another storage",
                source.kind, source.name
            )));
        }
        let key = rendered.storages[index].clone();
        let entry = entry::storage(source, index, &key, rendered)?;
        entries.push((key, entry));
    }
    Ok(entries)
}

/// Returns the key of the default storage.
fn default_storage(parent: &Parent, related: &Related, rendered: &Rendered) -> Option<String> {
    let name = parent.spec.default_storage.as_ref();
    let index = related
        .storages
        .iter()
        .position(|source| Some(&source.name) == name)
        .unwrap_or(0);
    rendered.storages.get(index).cloned()
}

/// Returns a name as a gobackup key. gobackup reads a dot as a separator of levels.
pub(crate) fn key_of(name: &str) -> String {
    name.replace('.', "_")
}

/// Returns a key that no earlier reference has: a number follows where two names become the same key.
fn unique(name: &str, taken: &mut BTreeSet<String>) -> String {
    let base = key_of(name);
    let mut key = base.clone();
    let mut number = 2;
    while !taken.insert(key.clone()) {
        key = format!("{base}_{number}");
        number += 1;
    }
    key
}

/// Returns the keys for databases or storages with these names, in their order.
pub(crate) fn keys<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken = BTreeSet::new();
    names.map(|name| unique(name, &mut taken)).collect()
}

fn sorted(mut entries: Entries) -> Node {
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let entries = entries.into_iter();
    Node::Map(entries.map(|(key, entry)| (quoted(&key), entry)).collect())
}

/// Renders the model's part before the databases.
fn head(settings: &ArchiveSettings, rendered: &mut Rendered) -> Vec<(String, Node)> {
    let mut model = Vec::new();
    for (key, text) in [
        ("description", &settings.description),
        ("before_script", &settings.before_script),
        ("after_script", &settings.after_script),
    ] {
        push_text(&mut model, key, text.as_ref());
    }
    let args = settings
        .compress_with
        .as_ref()
        .and_then(|compression| compression.args.as_ref());
    if args.is_some_and(|args| !args.is_empty()) {
        rendered.warnings.push(Warning::new(
            "CompressArgsBroken",
            "compressWith.args: gobackup takes them for the archive name, so each run fails; remove them",
        ));
    }
    model.push((
        "compress_with".to_owned(),
        compressor(settings.compress_with.as_ref()),
    ));
    if let Some(block) = settings
        .encode_with
        .as_ref()
        .filter(|block| is_encrypting(block))
    {
        let map = encryption(block, rendered);
        model.push(("encrypt_with".to_owned(), Node::Map(map)));
    }
    if let Some(split) = &settings.split_with {
        let map = vec![
            (
                "chunk_size".to_owned(),
                Node::Text(split.chunk_size.clone()),
            ),
            (
                "numeric_suffixes".to_owned(),
                Node::Plain(split.numeric_suffixes.unwrap_or(true).to_string()),
            ),
            (
                "suffix_length".to_owned(),
                Node::Plain(split.suffix_length.unwrap_or(3).to_string()),
            ),
        ];
        model.push(("split_with".to_owned(), Node::Map(map)));
    }
    if let Some(archive) = &settings.archive {
        let mut map = Vec::new();
        if !archive.excludes.is_empty() {
            map.push(("excludes".to_owned(), Node::Texts(archive.excludes.clone())));
        }
        map.push(("includes".to_owned(), Node::Texts(archive.includes.clone())));
        rendered.archive = archive.clone();
        model.push(("archive".to_owned(), Node::Map(map)));
    }
    model
}

/// Renders the compression, with the format for archive names.
///
/// gobackup names archives after the second of the run, so two runs with the same storage could overwrite each other's
/// archives. The script sets the variable to letters that are unique to the run. The user's own format stays as it is.
fn compressor(settings: Option<&Compression>) -> Node {
    let settings = settings.cloned().unwrap_or_default();
    let type_ = settings
        .type_
        .as_deref()
        .and_then(compression)
        .unwrap_or("tar");
    let mut map = vec![("type".to_owned(), Node::Text(type_.to_owned()))];
    push_text(&mut map, "args", settings.args.as_ref());
    let format = match settings.filename_format.filter(|format| !format.is_empty()) {
        Some(format) => Node::Text(format),
        None => Node::Plain("\"2006.01.02.15.04.05-${ARCHIVE_ID}\"".to_owned()),
    };
    map.push(("filename_format".to_owned(), format));
    Node::Map(map)
}

/// Returns true if a block asks for encryption.
pub(crate) fn is_encrypting(encryption: &Encryption) -> bool {
    encryption.type_.as_deref() == Some("openssl") || encryption.openssl == Some(true)
}

fn encryption(encryption: &Encryption, rendered: &mut Rendered) -> Vec<(String, Node)> {
    let mut map = vec![("type".to_owned(), Node::Text("openssl".to_owned()))];
    push_text(&mut map, "args", encryption.args.as_ref());
    if let Some(base64) = encryption.base64 {
        map.push(("base64".to_owned(), Node::Plain(base64.to_string())));
    }
    // gobackup's key is misspelled.
    push_text(&mut map, "chiper", encryption.cipher.as_ref());
    let (field, origin) = match (&encryption.password_ref, &encryption.password) {
        (Some(secret), _) => ("encodeWith.passwordRef", Origin::Secret(secret.clone())),
        (None, password) => {
            rendered.warnings.push(Warning::new(
                "ClearTextCredential",
                "encodeWith.password is written in clear text; use encodeWith.passwordRef",
            ));
            let password = password.clone().unwrap_or_default();
            ("encodeWith.password", Origin::Clear(password))
        }
    };
    let name = "ENC_PASSWORD".to_owned();
    map.push(("password".to_owned(), Node::Variable(name.clone())));
    rendered.credentials.push(Credential {
        name,
        origin,
        passing: Passing::Value,
        field: field.to_owned(),
    });
    if let Some(salt) = encryption.salt {
        map.push(("salt".to_owned(), Node::Plain(salt.to_string())));
    }
    map
}

fn push_text(map: &mut Vec<(String, Node)>, key: &str, text: Option<&String>) {
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        map.push((key.to_owned(), Node::Text(text.clone())));
    }
}
