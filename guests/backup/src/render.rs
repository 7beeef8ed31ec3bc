//! The configuration of gobackup, rendered from the parent and the objects that it refers to.
//!
//! It holds no credential: neither one of a Secret nor one in clear text. Both become environment
//! variables or files, which the kubelet fills.

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
    /// The name of the variable or of the file; in the child Secret also the key.
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) passing: Passing,
    /// The field of the parent or of a related object that holds or names the credential.
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
    /// As a file. A value of several lines cannot be a variable, because the block that holds a variable
    /// in the configuration would end at the first line.
    File,
    /// As a value of the configuration: one line.
    Value,
    /// As a word of a command line, which gobackup splits at white space, so what follows would be
    /// further arguments.
    Word,
    /// As a word that a program would take for an option if it began with a dash.
    Operand,
    /// As an operand in a command line that gobackup gives to a shell.
    Shell,
}

/// The origin of a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Clear text in a parent or related object. The value goes into the child Secret.
    Clear(String),
    /// A key of the user's Secret.
    Secret(SecretKey),
}

/// A storage of type local.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalStorage {
    /// The name of the object.
    pub(crate) name: String,
    /// The key in the configuration.
    pub(crate) key: String,
    /// The path of the storage itself, at which the run mounts a claim.
    pub(crate) mount: String,
    /// The directory of the archives, there or below.
    pub(crate) path: String,
}

/// The file of a database of type sqlite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SqliteFile {
    /// The kind and the name of the object.
    pub(crate) name: String,
    pub(crate) path: String,
}

/// The directory of credentials that are files.
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
    /// The key of the model in the configuration.
    pub(crate) model: String,
    /// The keys of the storages, in the order of the references.
    pub(crate) storages: Vec<String>,
    pub(crate) local: Vec<LocalStorage>,
    /// The files of databases of type sqlite.
    pub(crate) sqlite: Vec<SqliteFile>,
    /// There are databases.
    pub(crate) has_dumps: bool,
    /// A storage has `keep`.
    pub(crate) has_keep: bool,
    /// Storages with `keep` from which gobackup cannot read its state back.
    pub(crate) forgetful: Vec<String>,
}

/// The compressions that gobackup has, by its names.
pub(crate) const COMPRESSIONS: &[&str] = &[
    "gz", "tgz", "taz", "tar.gz", "Z", "taZ", "tar.Z", "bz2", "tbz", "tbz2", "tar.bz2", "lz",
    "tar.lz", "lzma", "tlz", "tar.lzma", "lzo", "tar.lzo", "xz", "txz", "tar.xz", "zst", "tzst",
    "tar.zst", "tar",
];

/// Further names of compressions, with those of gobackup.
pub(crate) const COMPRESSION_ALIASES: &[(&str, &str)] =
    &[("gzip", "tgz"), ("bzip2", "tbz"), ("zstd", "tar.zst")];

/// gobackup's name of a compression; none if gobackup does not have it.
pub(crate) fn compression(type_: &str) -> Option<&str> {
    let mut aliases = COMPRESSION_ALIASES.iter();
    let alias = aliases.find(|it| it.0 == type_).map(|it| it.1);
    alias.or_else(|| COMPRESSIONS.contains(&type_).then_some(type_))
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
    let type_ = settings
        .compress_with
        .as_ref()
        .and_then(|it| it.type_.as_deref());
    if let Some(type_ @ ("Z" | "taZ" | "tar.Z")) = type_.filter(|_| parent.spec.image.is_none()) {
        rendered.warnings.push(Warning::new(
            "TypeNotInImage",
            format!(
                "compressWith.type: the image of gobackup has no program for {type_}; use tgz, or set \
                 spec.image to one that has compress"
            ),
        ));
    }
    let mut databases = Vec::new();
    let mut taken = BTreeSet::new();
    for (index, source) in related.databases.iter().enumerate() {
        let key = unique(&source.name, &mut taken);
        let entry = entry::database(source, index, &key, parent, &mut rendered)?;
        rendered.has_dumps = true;
        databases.push((key, entry));
    }
    let mut storages = Vec::new();
    let mut default = None;
    let mut taken = BTreeSet::new();
    for (index, source) in related.storages.iter().enumerate() {
        let key = unique(&source.name, &mut taken);
        let type_ = source.type_.name;
        if settings.split_with.is_some() && matches!(type_, "ftp" | "sftp") {
            return Err(Stop::invalid_reference(format!(
                "{} {}: gobackup cannot store the chunks of splitWith in a storage of type {type_}; remove splitWith, or \
                 use another storage",
                source.kind, source.name
            )));
        }
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
    let mut notifiers = Vec::new();
    for (index, given) in settings.notifiers.iter().flatten().enumerate() {
        let entry = entry::notifier(given, index, &mut rendered)?;
        notifiers.push((given.name.clone(), entry));
    }
    if !notifiers.is_empty() {
        model.push(("notifiers".to_owned(), sorted(notifiers)));
    }
    let models = Node::Map(vec![(quoted(&rendered.model), Node::Map(model))]);
    rendered.text = yaml::write(vec![("models".to_owned(), models)], parent.spec.expand_env);
    Ok(rendered)
}

/// A name as a key of gobackup, which reads a dot as a separator of levels.
pub(crate) fn key_of(name: &str) -> String {
    name.replace('.', "_")
}

/// A key that no earlier reference has: a number is appended where two names become the same key.
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

/// The keys of databases or storages with these names, in their order.
pub(crate) fn keys<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken = BTreeSet::new();
    names.map(|name| unique(name, &mut taken)).collect()
}

fn sorted(mut entries: Vec<(String, Node)>) -> Node {
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let entries = entries.into_iter();
    Node::Map(entries.map(|(key, entry)| (quoted(&key), entry)).collect())
}

/// The part of the model before the databases.
fn head(settings: &ArchiveSettings, rendered: &mut Rendered) -> Vec<(String, Node)> {
    let mut model = Vec::new();
    for (key, text) in [
        ("description", &settings.description),
        ("before_script", &settings.before_script),
        ("after_script", &settings.after_script),
    ] {
        push_text(&mut model, key, text.as_ref());
    }
    let compression = settings.compress_with.as_ref();
    let args = compression.and_then(|it| it.args.as_ref());
    if args.is_some_and(|it| !it.is_empty()) {
        rendered.warnings.push(Warning::new(
            "CompressArgsBroken",
            "compressWith.args: gobackup takes them for the name of the archive, so each run fails; remove them",
        ));
    }
    model.push((
        "compress_with".to_owned(),
        compressor(settings.compress_with.as_ref()),
    ));
    if let Some(given) = settings.encode_with.as_ref().filter(|it| is_encrypting(it)) {
        let map = encryption(given, rendered);
        model.push(("encrypt_with".to_owned(), Node::Map(map)));
    }
    if let Some(given) = &settings.split_with {
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
    if let Some(given) = &settings.archive {
        let mut map = Vec::new();
        if !given.excludes.is_empty() {
            map.push(("excludes".to_owned(), Node::Texts(given.excludes.clone())));
        }
        map.push(("includes".to_owned(), Node::Texts(given.includes.clone())));
        rendered.archive = given.clone();
        model.push(("archive".to_owned(), Node::Map(map)));
    }
    model
}

/// The compression, with the names of the archives.
///
/// gobackup names them after the second of the run, so two runs that share a storage could overwrite each
/// other's. The script of the run sets the variable to letters that no other run has. A format of the user is
/// left as it is.
fn compressor(given: Option<&Compression>) -> Node {
    let given = given.cloned().unwrap_or_default();
    let type_ = given
        .type_
        .as_deref()
        .and_then(compression)
        .unwrap_or("tar");
    let mut map = vec![("type".to_owned(), Node::Text(type_.to_owned()))];
    push_text(&mut map, "args", given.args.as_ref());
    let format = match given.filename_format.filter(|it| !it.is_empty()) {
        Some(format) => Node::Text(format),
        None => Node::Plain("\"2006.01.02.15.04.05-${ARCHIVE_ID}\"".to_owned()),
    };
    map.push(("filename_format".to_owned(), format));
    Node::Map(map)
}

/// Returns true if a block asks for encryption.
pub(crate) fn is_encrypting(given: &Encryption) -> bool {
    given.type_.as_deref() == Some("openssl") || given.openssl == Some(true)
}

fn encryption(given: &Encryption, rendered: &mut Rendered) -> Vec<(String, Node)> {
    let mut map = vec![("type".to_owned(), Node::Text("openssl".to_owned()))];
    push_text(&mut map, "args", given.args.as_ref());
    if let Some(base64) = given.base64 {
        map.push(("base64".to_owned(), Node::Plain(base64.to_string())));
    }
    // The misspelling is the name of the key in gobackup.
    push_text(&mut map, "chiper", given.cipher.as_ref());
    let (field, origin) = match (&given.password_ref, &given.password) {
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
