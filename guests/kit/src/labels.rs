//! Labels for children, label selectors, and the version label.

use std::collections::BTreeMap;

use innkeeper_sdk::child::is_dns_subdomain;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// The label on a child: the name of the application.
pub const NAME: &str = "app.kubernetes.io/name";
/// The label on a child: the name of its parent.
pub const INSTANCE: &str = "app.kubernetes.io/instance";
/// The label on a child: the component within the application.
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// The label on a child: its manager, `innkeeper`.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The label on a child: the version of the application; never part of a selector.
pub const VERSION: &str = "app.kubernetes.io/version";
/// The value under [`MANAGED_BY`].
pub const INNKEEPER: &str = "innkeeper";

/// Returns the four labels for children and Pods; selectors have exactly these.
///
/// ```
/// use innkeeper_kit::labels::{base_labels, selector_text};
///
/// let labels = base_labels("memcached", "example", "cache");
/// assert_eq!(
///     selector_text(&labels),
///     "app.kubernetes.io/component=cache,app.kubernetes.io/instance=example,\
///      app.kubernetes.io/managed-by=innkeeper,app.kubernetes.io/name=memcached",
/// );
/// ```
pub fn base_labels(name: &str, instance: &str, component: &str) -> BTreeMap<String, String> {
    [
        (NAME, name),
        (INSTANCE, instance),
        (COMPONENT, component),
        (MANAGED_BY, INNKEEPER),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

/// Adds the version label if the image has a version; for workloads and their Pods only.
pub fn with_version(labels: &BTreeMap<String, String>, image: &str) -> BTreeMap<String, String> {
    let mut labels = labels.clone();
    if let Some(version) = version_of(image) {
        labels.insert(VERSION.to_owned(), version.to_owned());
    }
    labels
}

/// Returns the tag in an image reference, if it is a valid label value.
///
/// ```
/// use innkeeper_kit::labels::version_of;
///
/// assert_eq!(version_of("memcached:1.6"), Some("1.6"));
/// assert_eq!(version_of("registry:5000/memcached"), None);
/// assert_eq!(version_of("registry:5000/a/memcached:1.6.6@sha256:0123"), Some("1.6.6"));
/// ```
pub fn version_of(image: &str) -> Option<&str> {
    let name = image.split('@').next().unwrap_or_default();
    // A colon before the last slash belongs to the registry's port.
    let last = name.rsplit('/').next().unwrap_or_default();
    let (_, version) = last.split_once(':')?;
    (!version.is_empty() && is_label_value(version)).then_some(version)
}

/// Returns a label selector as text, for reads and `status.selector`: `key=value`, sorted, comma-separated.
pub fn selector_text(labels: &BTreeMap<String, String>) -> String {
    labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect::<Vec<_>>()
        .join(",")
}

/// Returns a label selector for a workload or a policy.
pub fn label_selector(labels: &BTreeMap<String, String>) -> LabelSelector {
    LabelSelector {
        match_labels: Some(labels.clone()),
        ..LabelSelector::default()
    }
}

/// Returns whether the text is a valid label value: at most 63 characters, may be empty.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || (text.len() <= 63 && is_name_part(text))
}

/// Returns whether the text is a valid label key: an optional DNS name and a slash, and a name with at most 63
/// characters.
pub fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text
        .split_once('/')
        .map_or((None, text), |(it, name)| (Some(it), name));
    name.len() <= 63 && is_name_part(name) && prefix.is_none_or(is_dns_subdomain)
}

/// Checks annotation keys that a parent sets on a child.
///
/// The API server accepts any key in a custom resource's spec, but refuses it in a child's annotations.
///
/// # Errors
///
/// `<path>: "<key>" is not an annotation key: ...`, for the first wrong key.
pub fn check_annotations(path: &str, annotations: &BTreeMap<String, String>) -> Result<(), String> {
    // The API server allows capitals in an annotation's prefix, but not in a label's.
    let bad = annotations
        .keys()
        .find(|key| !is_label_key(&key.to_ascii_lowercase()));
    bad.map_or(Ok(()), |key| {
        Err(format!(
            "{path}: \"{key}\" is not an annotation key: write at most 63 letters, digits, '-', '_' or '.', \
             after a DNS name and a slash if need be"
        ))
    })
}

/// Checks label keys and values, as [`check_annotations`] does for annotations.
///
/// # Errors
///
/// `<path>: "<key>" is not a label key: ...` or `<path>.<key>: "<value>" is not a label value: ...`,
/// for the first wrong label.
pub fn check_labels(path: &str, labels: &BTreeMap<String, String>) -> Result<(), String> {
    for (key, value) in labels {
        if !is_label_key(key) {
            return Err(format!(
                "{path}: \"{key}\" is not a label key: write at most 63 letters, digits, '-', '_' or '.', after a \
                 DNS name and a slash if need be"
            ));
        }
        if !is_label_value(value) {
            return Err(format!(
                "{path}.{key}: \"{value}\" is not a label value: write at most 63 letters, digits, '-', '_' or '.', \
                 or nothing"
            ));
        }
    }
    Ok(())
}

fn is_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes
        .first()
        .zip(bytes.last())
        .is_some_and(|(first, last)| first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::{base_labels, is_label_key, is_label_value, version_of, with_version};

    #[test]
    fn takes_the_version_from_the_tag_alone() {
        let cases = [
            ("memcached", None),
            ("memcached:1.6", Some("1.6")),
            ("memcached@sha256:0123", None),
            ("registry:5000/memcached", None),
            ("registry:5000/a/memcached:1.6.6@sha256:0123", Some("1.6.6")),
            ("memcached:", None),
            ("memcached:-bad", None),
            ("", None),
        ];
        for (image, version) in cases {
            assert_eq!(version_of(image), version, "{image}");
        }
        let labels = base_labels("memcached", "a", "cache");
        assert_eq!(with_version(&labels, "memcached"), labels);
        assert_eq!(with_version(&labels, "memcached:1.6").len(), 5);
    }

    #[test]
    fn knows_valid_labels() {
        assert!(
            ["", "a", "A_b.c-1", &"a".repeat(63)]
                .into_iter()
                .all(is_label_value)
        );
        assert!(
            !["-a", "a-", "a b", "é", &"a".repeat(64)]
                .into_iter()
                .any(is_label_value)
        );
        assert!(
            ["a", "a.b/c_D", "example.com/x"]
                .into_iter()
                .all(is_label_key)
        );
        assert!(
            !["", "/a", "a/", "A.b/c", "a/b/c", "a..b/c"]
                .into_iter()
                .any(is_label_key)
        );
    }
}
