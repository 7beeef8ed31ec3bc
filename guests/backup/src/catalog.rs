//! The types of databases, storages and notifiers that gobackup supports, with their keys.
//!
//! `catalog.yaml` lists them. The schemas and the renderer use the same tables, so they cannot disagree. `render`
//! checks and renders the values.

// The constants `DATABASES`, `STORAGES` and `NOTIFIERS`.
include!(concat!(env!("OUT_DIR"), "/catalog.rs"));

/// Form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    /// One of these texts.
    Choice(&'static [&'static str]),
    Number,
    /// A TCP port.
    Port,
    Flag,
    Texts,
}

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    /// The text of `kubectl explain`.
    pub(crate) description: &'static str,
    /// Never written into the configuration; `<name>_ref` names a Secret instead.
    pub(crate) is_secret: bool,
    pub(crate) is_required: bool,
}

impl Key {
    /// Returns true if the key has a twin `<name>_ref`, which takes the value from a Secret.
    pub(crate) fn has_twin(&self) -> bool {
        self.is_secret || self.name == "username"
    }
}

/// A type of database, storage or notifier.
#[derive(Debug)]
pub(crate) struct Type {
    /// The name in the API.
    pub(crate) name: &'static str,
    /// The name in gobackup's configuration.
    pub(crate) rendered: &'static str,
    /// gobackup splits command lines at white space.
    splits_command: bool,
    /// An object store with an S3-compatible API or one like it.
    pub(crate) is_s3_like: bool,
    /// A notifier with HTTP headers, each from a Secret.
    pub(crate) has_headers: bool,
    /// Every key except `type`.
    pub(crate) keys: &'static [Key],
}

impl Type {
    /// Returns the key with this name.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// Returns the key whose value `<key>_ref` takes from a Secret.
    pub(crate) fn key_of_twin(&self, name: &str) -> Option<&'static Key> {
        let key = self.key(name.strip_suffix("_ref")?)?;
        key.has_twin().then_some(key)
    }

    /// Returns true if gobackup splits a key's value at white space.
    ///
    /// PostgreSQL clients take the password from a variable.
    pub(crate) fn splits(&self, key: &Key) -> bool {
        self.splits_command && !(self.name == "postgresql" && key.is_secret)
    }

    /// Returns true if gobackup can read the state file back from the storage.
    ///
    /// gobackup downloads the state by a signed URL; upyun has none.
    pub(crate) fn keeps_its_state(&self) -> bool {
        self.is_s3_like && self.name != "upyun"
    }
}

/// All types of databases, storages or notifiers.
pub(crate) struct Family {
    pub(crate) types: &'static [Type],
    /// Keys of the second generation's manifests that gobackup does not have; the renderer translates them.
    pub(crate) old: &'static [Key],
    /// Keys that the schema accepts only for these types. Manifests of older generations never set them for another type.
    pub(crate) exclusive: &'static [(&'static str, &'static [&'static str])],
}

impl Family {
    /// Returns the type with this name.
    pub(crate) fn find(&self, name: &str) -> Option<&'static Type> {
        self.types.iter().find(|type_| type_.name == name)
    }
}
