//! Checks that a ServiceAccount is meant for the plugin that writes its children as this account.
//!
//! Without the account's annotation, an author of Plugins could act as any account that the host may impersonate. The
//! API server checks the account's permissions on every write.

use innkeeper_cluster::Cluster;
use innkeeper_model::{ANNOTATION_PLUGINS, Gvk, PluginName, PluginReason, Retry, error_chain};

use crate::{
    resource::ServiceAccountRef,
    stage::{Stage, StageFailure},
};

/// Checks that an account's annotation names the plugin.
///
/// The check precedes every activation, not every write: to take the account from an active plugin at once, remove the
/// account's rights.
pub(crate) async fn check(
    cluster: &Cluster,
    plugin: &PluginName,
    account: &ServiceAccountRef,
) -> Result<(), StageFailure> {
    let ServiceAccountRef { namespace, name } = account;
    let kind = Gvk::new("", "v1", "ServiceAccount");
    let (reason, message) = match cluster.live_get(&kind, Some(namespace), name).await {
        Ok(Some(object)) if names(object.annotation(ANNOTATION_PLUGINS), plugin) => return Ok(()),
        Ok(Some(_)) => (
            PluginReason::AccountNotForPlugin,
            format!(
                "the ServiceAccount {namespace}/{name} does not name this Plugin: add {plugin} to its annotation {ANNOTATION_PLUGINS}, separated by commas"
            ),
        ),
        Ok(None) => (
            PluginReason::AccountMissing,
            format!(
                "there is no ServiceAccount {namespace}/{name}: create it with the annotation {ANNOTATION_PLUGINS}: {plugin} (innkeeper manifests --account prints it with its roles)"
            ),
        ),
        Err(error) => (
            PluginReason::AccountNotRead,
            error_chain(&error).to_string(),
        ),
    };
    // The host does not watch accounts, so no event reports a change.
    Err(Stage::Serving.failure(reason, message, Retry::Backoff))
}

fn names(annotation: Option<&str>, plugin: &PluginName) -> bool {
    annotation
        .unwrap_or_default()
        .split(',')
        .any(|name| name.trim() == plugin.as_str())
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
