//! References of images, as fields of a parent and of a configuration.

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

/// The pattern of a reference that a kubelet can pull: host and port of a registry, path, tag and digest, by the grammar
/// of the distribution project.
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

/// The pattern of a repository without tag and digest.
pub const REPOSITORY: &str = concat!("^", repository!(), "$");

/// The pattern of an entry in a list of repositories: a repository without tag and digest, or, with a slash at the end,
/// the start of repositories.
pub const REPOSITORIES: &str = concat!(
    "^(",
    repository!(),
    "/?|",
    // A registry whose name is no path: with capitals, a port or as an address.
    r"([a-zA-Z0-9.-]+|\[[a-fA-F0-9:]+\])(:[0-9]{1,5})?/)$"
);

/// The rule that a text is a [reference](REFERENCE) that a kubelet can pull.
///
/// The API server would accept any other text in a Pod, which then waits with `InvalidImageName` for ever.
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
    // A text of CEL takes a backslash for the start of an escape.
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
