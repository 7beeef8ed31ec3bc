//! References of images, as the field of a parent.

use kube::core::Rule;

/// The rule that a text is a reference that a kubelet can pull: host and port of a registry, path, tag
/// and digest, by the grammar of the distribution project.
///
/// The API server would accept any other text in a Pod, which then waits with `InvalidImageName` for ever.
///
/// ```
/// use innkeeper_sdk::image;
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
    let word = "[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?";
    let host = format!("({word}([.]{word})*|\\\\[[a-fA-F0-9:]+\\\\])(:[0-9]{{1,5}})?");
    let part = "[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*";
    let tag = "[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}";
    let digest = "(sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128})";
    Rule::new(format!(
        "self == '' || self.matches('^({host}/)?{part}(/{part})*(:{tag})?(@{digest})?$') \
         && self.matches('^[^@]{{1,255}}(:[^:/@]+)?(@.+)?$') && !self.matches('^[a-f0-9]{{64}}$')"
    ))
    .message(
        "must be an image reference such as registry.example.com:5000/team/app:1.2, with the path in lower case \
         and a digest as @sha256:<64 hexadecimal digits>",
    )
}
