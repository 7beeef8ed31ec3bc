//! Image references in parents and configurations.

use kube::core::Rule;

macro_rules! repository {
    () => {
        concat!(
            r"(([a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?([.][a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*",
            r"|\[[a-fA-F0-9:]+\])(:[0-9]{1,5})?/)?",
            "[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*"
        )
    };
}

/// Matches image references that a kubelet can pull: registry host and port, path, tag and digest, in the grammar of
/// the distribution project.
///
/// ```
/// use innkeeper_kit::image;
/// use schemars::JsonSchema;
///
/// #[derive(JsonSchema)]
/// struct Config {
///     #[schemars(regex(pattern = image::REFERENCE))]
///     image: String,
///     #[schemars(inner(regex(pattern = image::REPOSITORIES)))]
///     allowed: Vec<String>,
/// }
/// ```
pub const REFERENCE: &str = concat!(
    "^",
    repository!(),
    "(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?",
    "(@(sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128}))?$"
);

/// Matches a repository without tag and digest.
pub const REPOSITORY: &str = concat!("^", repository!(), "$");

/// Matches an entry in a repository list: a repository without tag and digest, or a prefix that ends with a slash.
pub const REPOSITORIES: &str = concat!(
    "^(",
    repository!(),
    "/?|",
    // A registry host, which may have capitals or a port, or be an address.
    r"([a-zA-Z0-9.-]+|\[[a-fA-F0-9:]+\])(:[0-9]{1,5})?/)$"
);

/// Requires a [reference](REFERENCE) that a kubelet can pull.
///
/// The API server accepts any text in a Pod, which then waits forever with `InvalidImageName`.
///
/// ```
/// use innkeeper_kit::image;
/// use kube::KubeSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(KubeSchema, Serialize, Deserialize)]
/// struct WebSpec {
///     #[schemars(length(min = 1, max = 512))]
///     #[x_kube(validation = image::is_reference())]
///     image: String,
/// }
/// ```
pub fn is_reference() -> Rule {
    // In CEL strings a backslash starts an escape.
    let pattern = REFERENCE.replace('\\', r"\\");
    Rule::new(format!(
        "self == '' || self.matches('{pattern}') \
         && self.matches('^[^@]{{1,255}}(:[^:/@]+)?(@.+)?$') && !self.matches('^[a-f0-9]{{64}}$')"
    ))
    .message(
        "must be an image reference such as registry.example.com:5000/team/app:1.2, with the path in lower case \
         and a digest as @sha256:<64 hexadecimal digits>",
    )
}
