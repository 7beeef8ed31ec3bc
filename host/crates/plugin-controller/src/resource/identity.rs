//! `spec.verify` beyond the keys: the signed plugin's identity.

use innkeeper_model::{Digest, Manifest, PluginReason};
use semver::Version;

use super::{Error, VerifySpec};

/// The identity that a signed plugin must have.
///
/// One key signs many artifacts, so with the key alone a registry could serve another artifact or an older one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The repository that the signature has to name.
    pub repository: Option<String>,
    /// The name that the plugin has to give itself.
    pub name: Option<String>,
    /// The lowest version that the plugin may give itself.
    pub version_min: Option<Version>,
}

impl VerifySpec {
    /// Returns the required identity; `path` is the spec's path.
    pub(super) fn identity(&self, path: &str) -> Result<Identity, Error> {
        let version_min = self
            .min_version
            .as_deref()
            .map(Version::parse)
            .transpose()
            .map_err(|error| {
                let problem = format!("must be a semantic version, such as 1.4.0: {error}");
                Error::field(format!("{path}.minVersion"), problem)
            })?;
        Ok(Identity {
            repository: self.repository.clone(),
            name: self.name.clone(),
            version_min,
        })
    }
}

impl Identity {
    /// Checks the name and the version that a signed plugin gives itself. An error is a reason and a message.
    pub(crate) fn check(&self, manifest: &Manifest) -> Result<(), (PluginReason, String)> {
        let name = manifest.name.as_str();
        let version = &manifest.version;
        if let Some(required) = self.name.as_ref().filter(|required| *required != name) {
            let message = format!("the plugin's name is {name}, spec.verify.name is {required}");
            return Err((PluginReason::OtherPlugin, message));
        }
        let Some(least) = &self.version_min else {
            return Ok(());
        };
        match Version::parse(version) {
            // Build metadata makes a version neither older nor newer, but `Ord` compares it.
            Ok(version) if version.cmp_precedence(least).is_ge() => Ok(()),
            Ok(_) => {
                let message =
                    format!("the plugin's version is {version}, spec.verify.minVersion is {least}");
                Err((PluginReason::OldVersion, message))
            }
            Err(error) => {
                let message = format!(
                    "the plugin's version {version} is no semantic version, which spec.verify.minVersion needs: {error}"
                );
                Err((PluginReason::OldVersion, message))
            }
        }
    }

    /// Returns the mark for cached bytes whose signature was checked with a key.
    ///
    /// A check for one repository proves nothing for another.
    pub(crate) fn mark(&self, key: &Digest) -> Digest {
        match &self.repository {
            None => key.clone(),
            Some(repository) => {
                Digest::hash_parts([key.to_hex().as_bytes(), repository.as_bytes()])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use innkeeper_model::PluginName;
    use serde_json::{Value, json};

    use super::*;

    fn verify(more: &Value) -> VerifySpec {
        let mut verify = json!({"keys": []});
        for (field, value) in more.as_object().unwrap() {
            verify[field] = value.clone();
        }
        serde_json::from_value(verify).unwrap()
    }

    fn identity(more: &Value) -> Identity {
        verify(more).identity("spec.verify").unwrap()
    }

    fn manifest(version: &str) -> Manifest {
        Manifest {
            name: PluginName::new("web").unwrap(),
            version: version.to_owned(),
            parents: Vec::new(),
            crds: Vec::new(),
            children: Vec::new(),
            reads: Vec::new(),
            finalize: false,
            reads_own_status: false,
            config_schema: None,
        }
    }

    #[test]
    fn a_signed_plugin_must_have_the_required_name_and_version() {
        let no_version = json!({"name": "web"});
        let both = json!({"name": "web", "minVersion": "1.4.0"});
        for (required, version, reason) in [
            (json!({}), "anything", None),
            (no_version, "anything", None),
            (
                json!({"name": "other"}),
                "1.4.0",
                Some(PluginReason::OtherPlugin),
            ),
            (both.clone(), "1.4.0", None),
            (both.clone(), "1.4.0+build", None),
            (both.clone(), "1.10.0", None),
            (both.clone(), "1.3.9", Some(PluginReason::OldVersion)),
            (both.clone(), "1.4.0-rc.1", Some(PluginReason::OldVersion)),
            (both, "new", Some(PluginReason::OldVersion)),
        ] {
            let key = identity(&required)
                .check(&manifest(version))
                .err()
                .map(|(reason, _)| reason);
            assert_eq!(key, reason, "{required} {version}");
        }
        let error = verify(&json!({"minVersion": "1.4"}))
            .identity("spec.verify")
            .unwrap_err();
        let text = "spec.verify.minVersion must be a semantic version";
        assert!(error.to_string().starts_with(text), "{error}");
    }

    #[test]
    fn a_check_for_one_repository_marks_nothing_for_another() {
        let key = Digest::hash(b"key");
        let mark = |required| identity(&required).mark(&key);
        assert_eq!(mark(json!({"name": "web"})), key);
        let [one, other] = ["a.test/web", "a.test/other"]
            .map(|repository| mark(json!({"repository": repository})));
        assert!(one != other && one != key && other != key);
    }
}
