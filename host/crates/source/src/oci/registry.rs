//! A session with a registry about one repository.
//!
//! Starts without credentials, signs in when the registry requires it, and keeps the authorization until the end.

use ::http::{HeaderValue, StatusCode, header::WWW_AUTHENTICATE};
use innkeeper_model::Digest;
use reqwest::Url;

use super::{
    manifest::{Blob, INDEX_TYPE},
    token::{self, Realm},
};
use crate::{
    Failure, FailureKind, Oci,
    docker_config::Login,
    error::{check_digest, optional},
    transport::{Call, HttpAnswer, Transport, parse_url},
};

/// The registries' common limit; plugin manifests have less than a kilobyte.
const MANIFEST_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The requested manifest types. A manifest list is unusable, but it is requested so the error can name it.
pub(super) const ARTIFACT_TYPES: &str = "application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json, \
    application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json";

/// A session about one repository.
pub(super) struct Registry<'a> {
    transport: &'a Transport,
    /// The repository's address, ending in a slash.
    repository: Url,
    login: Option<&'a Login>,
    realm: Realm,
    authorization: Option<HeaderValue>,
}

impl<'a> Registry<'a> {
    /// Opens a session with an artifact's registry or a mirror: a host, or a host with a prefix for repositories.
    /// `http://` before a mirror selects plain HTTP.
    pub(super) fn open(
        transport: &'a Transport,
        oci: &'a Oci,
        mirror: Option<&str>,
        actions: &str,
    ) -> Result<Self, Failure> {
        let (host, repository) = endpoint(oci);
        let (scheme, host, repository) = match mirror {
            None if oci.insecure => ("http", host, repository),
            None => ("https", host, repository),
            Some(mirror) => {
                let (scheme, rest) = mirror.split_once("://").unwrap_or(("https", mirror));
                match rest.trim_end_matches('/').split_once('/') {
                    None => (scheme, rest, repository),
                    Some((host, prefix)) => (scheme, host, format!("{prefix}/{repository}")),
                }
            }
        };
        let config = oci.docker_config.as_ref();
        Ok(Self {
            transport,
            // By the host that gets the requests: a mirror never gets the registry's password.
            login: config.and_then(|config| config.login(host, &repository)),
            repository: parse_url(&format!("{scheme}://{host}/v2/{repository}/"))?,
            realm: Realm {
                scope: format!("repository:{repository}:{actions}"),
                insecure: scheme == "http",
            },
            authorization: None,
        })
    }

    /// Returns a manifest by tag or digest. Bytes without the requested digest are an error.
    pub(super) async fn manifest(
        &mut self,
        version: &str,
        types: &'static str,
        what: &str,
    ) -> Result<(Vec<u8>, Digest), Failure> {
        let call = Call::get(self.url(&format!("manifests/{version}"))?, types);
        let answer = self.call(call).await?;
        let (text, digest) = answer.body_if_ok(what, MANIFEST_BYTES_MAX).await?;
        if let Ok(expected) = version.parse() {
            check_digest("the manifest", &digest, &expected)?;
        }
        Ok((text, digest))
    }

    /// Returns the list of manifests that refer to a manifest, if the registry knows any.
    pub(super) async fn referrers(&mut self, digest: &Digest) -> Result<Option<Vec<u8>>, Failure> {
        const WHAT: &str = "the list of signatures";

        let call = Call::get(self.url(&format!("referrers/{digest}"))?, INDEX_TYPE);
        let answer = self.call(call).await?;
        if answer.status() == StatusCode::OK {
            let (text, _) = answer.body_if_ok(WHAT, MANIFEST_BYTES_MAX).await?;
            return Ok(Some(text));
        }
        // Registries without this API keep the list under a tag, where clients put it.
        let tag = format!("sha256-{}", digest.to_hex());
        let index = optional(self.manifest(&tag, INDEX_TYPE, WHAT).await)?;
        Ok(index.map(|(text, _)| text))
    }

    /// Returns a blob with a known digest and size.
    pub(super) async fn blob(&mut self, blob: &Blob, what: &str) -> Result<Vec<u8>, Failure> {
        let url = self.url(&format!("blobs/{}", blob.digest))?;
        let read = self
            .call(Call::get(url.clone(), "*/*"))
            .await?
            .body_if_ok(what, blob.size)
            .await;
        let (bytes, digest) = read.map_err(|failure| match failure.kind {
            // The limit is the size in the manifest, so this is the registry's fault and not the plugin's.
            FailureKind::TooLarge => {
                Failure::protocol(&url, "it sends more bytes than the manifest says")
            }
            _ => failure,
        })?;
        check_digest(what, &digest, &blob.digest)?;
        Ok(bytes)
    }

    /// Returns an address below the repository's.
    pub(super) fn url(&self, path: &str) -> Result<Url, Failure> {
        let base = &self.repository;
        base.join(path)
            .map_err(|_| Failure::url_refused(base.as_str(), "the path below it is not valid"))
    }

    /// Sends a request; signs in and repeats it if the registry requires that.
    pub(super) async fn call(&mut self, mut call: Call) -> Result<HttpAnswer<'a>, Failure> {
        let ours = self.repository.origin();
        loop {
            // A registry may send uploads to another server, which gets no token.
            if call.url.origin() == ours {
                call.credentials.clone_from(&self.authorization);
            }
            let answer = self.transport.send(call.clone()).await?;
            // A server to which the registry redirects could otherwise ask for the registry's credentials.
            let must_sign_in =
                answer.status() == StatusCode::UNAUTHORIZED && answer.url().origin() == ours;
            // Signed in already: the registry would refuse the same credentials again.
            if !must_sign_in || self.authorization.is_some() {
                return Ok(answer);
            }
            let challenges: Vec<String> = answer
                .headers()
                .get_all(WWW_AUTHENTICATE)
                .into_iter()
                .filter_map(|value| value.to_str().ok().map(str::to_owned))
                .collect();
            let authorization = token::authorize(
                self.transport,
                &self.repository,
                &challenges,
                &self.realm,
                self.login,
            )
            .await?;
            if authorization.is_none() {
                return Ok(answer);
            }
            self.authorization = authorization;
        }
    }
}

/// A registry's host and the repository there. Docker Hub's host differs from its name, and has `library/` before its
/// own images' names.
fn endpoint(oci: &Oci) -> (&str, String) {
    match (oci.reference.registry(), oci.reference.repository()) {
        ("docker.io" | "index.docker.io", repository) => {
            let library = if repository.contains('/') {
                ""
            } else {
                "library/"
            };
            ("registry-1.docker.io", format!("{library}{repository}"))
        }
        (registry, repository) => (registry, repository.to_owned()),
    }
}
