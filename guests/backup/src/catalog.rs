//! The types of databases, storages and notifiers that gobackup supports, and the keys of each.
//!
//! The same table drives the schemas of `Database`, `Storage` and notifiers and the renderer, so the two cannot
//! disagree. The values are checked and rendered in `render`.

mod databases;
mod notifiers;
mod storages;

pub(crate) use databases::{DATABASES, EXCLUSIVE, OLD_DATABASE_KEYS};
pub(crate) use notifiers::{NOTIFIERS, WITH_HEADERS};
pub(crate) use storages::STORAGES;

/// The form of a value.
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

/// One key of a type.
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
    const fn new(name: &'static str, form: Form, description: &'static str) -> Self {
        Self {
            name,
            form,
            description,
            is_secret: false,
            is_required: false,
        }
    }

    const fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    /// Returns true if the key has a twin `<name>_ref`, which takes the value from a Secret.
    pub(crate) fn has_twin(&self) -> bool {
        self.is_secret || self.name == "username"
    }
}

const fn text(name: &'static str, description: &'static str) -> Key {
    Key::new(name, Form::Text, description)
}

const fn number(name: &'static str, description: &'static str) -> Key {
    Key::new(name, Form::Number, description)
}

const fn flag(name: &'static str, description: &'static str) -> Key {
    Key::new(name, Form::Flag, description)
}

const fn texts(name: &'static str, description: &'static str) -> Key {
    Key::new(name, Form::Texts, description)
}

const fn secret(name: &'static str, description: &'static str) -> Key {
    let mut key = Key::new(name, Form::Text, description);
    key.is_secret = true;
    key
}

/// One type of database, storage or notifier.
#[derive(Debug)]
pub(crate) struct Type {
    /// The name in the API.
    pub(crate) name: &'static str,
    /// The name in the configuration of gobackup.
    pub(crate) rendered: &'static str,
    /// gobackup splits its command line at white space.
    splits_command: bool,
    /// An object store with an S3-compatible API or one like it.
    pub(crate) is_s3_like: bool,
    /// The keys of all types of the family.
    common: &'static [Key],
    /// Further keys, in groups that several types share.
    own: &'static [&'static [Key]],
}

impl Type {
    const fn new(
        name: &'static str,
        common: &'static [Key],
        own: &'static [&'static [Key]],
    ) -> Self {
        Self {
            name,
            rendered: name,
            splits_command: false,
            is_s3_like: false,
            common,
            own,
        }
    }

    /// Every key except `type`.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'static Key> {
        self.own.iter().copied().flatten().chain(self.common)
    }

    /// The key of this name.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys().find(|key| key.name == name)
    }

    /// The key whose value `<key>_ref` takes from a Secret.
    pub(crate) fn key_of_twin(&self, name: &str) -> Option<&'static Key> {
        let key = self.key(name.strip_suffix("_ref")?)?;
        key.has_twin().then_some(key)
    }

    /// Returns true if gobackup splits the value of a key at white space.
    ///
    /// The clients of PostgreSQL take the password from a variable.
    pub(crate) fn splits(&self, key: &Key) -> bool {
        self.splits_command && !(self.name == "postgresql" && key.is_secret)
    }

    /// Returns true if gobackup can read its state back from the storage.
    ///
    /// gobackup downloads the state by a signed URL; upyun has none.
    pub(crate) fn keeps_its_state(&self) -> bool {
        self.is_s3_like && self.name != "upyun"
    }
}

/// The type of a family by its name.
pub(crate) fn find(family: &'static [Type], name: &str) -> Option<&'static Type> {
    family.iter().find(|it| it.name == name)
}
