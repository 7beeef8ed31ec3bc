//! The account as which a plugin's children are written: whether it is there for this plugin.
//!
//! Without the annotation on the account an author of Plugins could act as any account that the host may impersonate.
//! The API server checks the permissions of the account on every write.

use innkeeper_cluster::Cluster;
use innkeeper_model::{ANNOTATION_PLUGINS, Gvk, PluginName, Retry};

use super::Failed;
use crate::{lifecycle::Stage, resource::ServiceAccount};

/// Makes sure that an account names the plugin.
///
/// Looked at whenever something begins to serve; to take the account away at once, take its rights.
pub(super) async fn check(
    cluster: &Cluster,
    plugin: &PluginName,
    account: &ServiceAccount,
) -> Result<(), Failed> {
    let ServiceAccount { namespace, name } = account;
    let kind = Gvk::new("", "v1", "ServiceAccount");
    let refused = |reason, message| {
        // Nothing tells the host when the account is another.
        Err(Failed::new(Stage::Serving, reason, message, Retry::Backoff))
    };
    match cluster.live_get(&kind, Some(namespace), name).await {
        Ok(Some(found)) if names(found.annotation(ANNOTATION_PLUGINS), plugin) => Ok(()),
        Ok(Some(_)) => refused(
            "AccountNotForPlugin",
            format!(
                "the ServiceAccount {namespace}/{name} is not for this Plugin: give it the annotation {ANNOTATION_PLUGINS} with {plugin} among its names, which are separated by commas"
            ),
        ),
        Ok(None) => refused(
            "AccountMissing",
            format!(
                "there is no ServiceAccount {namespace}/{name}: create it with the annotation {ANNOTATION_PLUGINS}: {plugin} (innkeeper manifests --account prints it with its roles)"
            ),
        ),
        Err(error) => Err(Failed::of(
            Stage::Serving,
            "AccountNotRead",
            &error,
            Retry::Backoff,
        )),
    }
}

fn names(annotation: Option<&str>, plugin: &PluginName) -> bool {
    let mut names = annotation.unwrap_or_default().split(',');
    names.any(|name| name.trim() == plugin.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_for_the_plugins_that_it_names() {
        let cache = PluginName::new("cache").unwrap();
        for named in ["cache", "web,cache", " web , cache "] {
            assert!(names(Some(named), &cache), "{named}");
        }
        for other in [
            None,
            Some(""),
            Some("web"),
            Some("cache2"),
            Some("cache web"),
            Some("*"),
        ] {
            assert!(!names(other, &cache), "{other:?}");
        }
    }
}
