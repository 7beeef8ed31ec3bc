//! Why an object is rejected, in the API server's words.

use std::{collections::BTreeSet, fmt};

use serde_json::Value;

use super::go;

/// What kind of problem a [`Cause`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CauseKind {
    /// A required field is missing.
    Required,
    /// A value breaks a rule.
    Invalid,
    /// A value has another type.
    TypeInvalid,
    /// A value is not one of an enumeration.
    NotSupported,
    /// A text is too long.
    TooLong,
    /// A list or map has too many entries.
    TooMany,
    /// An entry of a set or map-like list is there twice.
    Duplicate,
    /// A field may not be set.
    Forbidden,
}

impl CauseKind {
    /// Whether the API server skips the rules of an object with such a problem.
    pub(super) const fn blocks_rules(self) -> bool {
        matches!(
            self,
            Self::NotSupported | Self::Required | Self::TooLong | Self::TooMany | Self::TypeInvalid
        )
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
        }
    }
}

/// One reason for a rejection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// The field: `spec.containers[0].name`; `<nil>` where the API server names none.
    pub path: String,
    /// What kind of problem it is.
    pub kind: CauseKind,
    /// The whole text after the path: `Invalid value: -1: must be positive`.
    pub message: String,
}

/// What the API server prints for a missing path.
pub(super) const NO_PATH: &str = "<nil>";

impl Cause {
    /// A problem with a value that is shown.
    pub(super) fn with_value(kind: CauseKind, path: &str, value: &str, detail: &str) -> Self {
        Self::new(kind, path, Some(value), detail)
    }

    /// A problem without a value to show.
    pub(super) fn without_value(kind: CauseKind, path: &str, detail: &str) -> Self {
        Self::new(kind, path, None, detail)
    }

    fn new(kind: CauseKind, path: &str, value: Option<&str>, detail: &str) -> Self {
        let mut message = kind.as_str().to_owned();
        for part in value
            .into_iter()
            .chain(Some(detail).filter(|text| !text.is_empty()))
        {
            message.push_str(": ");
            message.push_str(part);
        }
        Self {
            path: if path.is_empty() { NO_PATH } else { path }.to_owned(),
            kind,
            message,
        }
    }

    /// A value that breaks a rule.
    pub(super) fn invalid(path: &str, value: &Value, detail: &str) -> Self {
        Self::with_value(CauseKind::Invalid, path, &go::value(value), detail)
    }

    /// A missing field.
    pub(super) fn required(path: &str, detail: &str) -> Self {
        Self::without_value(CauseKind::Required, path, detail)
    }

    /// A problem that the API server reports without a path.
    pub(super) fn unplaced(detail: &str) -> Self {
        Self::with_value(CauseKind::Invalid, NO_PATH, "\"\"", detail)
    }

    /// Says that rules were skipped.
    pub(super) fn rules_not_checked() -> Self {
        Self::with_value(
            CauseKind::Invalid,
            NO_PATH,
            "null",
            "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
        )
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// The API server would answer 422.
///
/// Its text is the message of the API server's answer; the order of several causes is not, because there it is random.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Rejection {
    subject: String,
    causes: Vec<Cause>,
}

impl Rejection {
    pub(super) fn new(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let mut seen = BTreeSet::new();
        Self {
            subject: format!("{kind}.{group} {}", go::quote(name)),
            causes: causes
                .into_iter()
                .filter(|cause| seen.insert(cause.to_string()))
                .collect(),
        }
    }

    /// The reasons; at least one, none twice.
    pub fn causes(&self) -> &[Cause] {
        &self.causes
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is invalid: ", self.subject)?;
        match self.causes.as_slice() {
            [cause] => write!(f, "{cause}"),
            causes => {
                let texts: Vec<String> = causes.iter().map(Cause::to_string).collect();
                write!(f, "[{}]", texts.join(", "))
            }
        }
    }
}
