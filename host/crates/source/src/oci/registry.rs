//! A session with a registry about one repository.
//!
//! Starts without credentials, signs in when the registry requires it, and keeps the authorization until the end.

use ::http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{ACCEPT, WWW_AUTHENTICATE},
};
use bytes::Bytes;
use innkeeper_model::Digest;
use reqwest::Url;

use super::{
    manifest::INDEX_TYPE,
    token::{self, Realm},
};
use crate::{
    Failure, Oci,
    docker_config::Login,
    transport::{Call, HttpAnswer, Transport, parse_url},
};

/// The common limit of registries; the manifests of plugins have less than a kilobyte.
const MANIFEST_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The requested types of manifests. A list of manifests cannot be used, but it is requested so that the error can name
/// it.
pub(super) const ARTIFACT_TYPES: &str = "application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json, \
    application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json";

/// A session about one repository.
pub(crate) struct Registry<'a> {
    transport: &'a Transport,
    /// The repository's address, with a slash at its end.
    repository: Url,
    login: Option<&'a Login>,
    realm: Realm,
    authorization: Option<HeaderValue>,
}

/// The answer to a request for a manifest.
pub(super) enum ManifestAnswer {
    Manifest(Vec<u8>, Digest),
    Nothing(Failure),
}

impl ManifestAnswer {
    pub(super) fn into_found(self) -> Result<(Vec<u8>, Digest), Failure> {
        match self {
            Self::Manifest(text, digest) => Ok((text, digest)),
            Self::Nothing(failure) => Err(failure),
        }
    }
}

impl<'a> Registry<'a> {
    pub(crate) fn to_pull(transport: &'a Transport, oci: &'a Oci) -> Result<Self, Failure> {
        let (host, repository) = place(oci);
        Self::open(transport, oci, host, &repository, "pull", oci.insecure)
    }

    pub(crate) fn to_push(transport: &'a Transport, oci: &'a Oci) -> Result<Self, Failure> {
        let (host, repository) = place(oci);
        Self::open(transport, oci, host, &repository, "pull,push", oci.insecure)
    }

    /// Opens a session with a mirror: a host, or a host and a prefix for repositories. `http://` before it selects
    /// plain HTTP.
    pub(crate) fn mirror(
        transport: &'a Transport,
        oci: &'a Oci,
        mirror: &str,
    ) -> Result<Self, Failure> {
        let (insecure, rest) = match mirror.strip_prefix("http://") {
            Some(rest) => (true, rest),
            None => (false, mirror.strip_prefix("https://").unwrap_or(mirror)),
        };
        let (_, repository) = place(oci);
        match rest.trim_end_matches('/').split_once('/') {
            None => Self::open(transport, oci, rest, &repository, "pull", insecure),
            Some((host, prefix)) => {
                let repository = format!("{prefix}/{repository}");
                Self::open(transport, oci, host, &repository, "pull", insecure)
            }
        }
    }

    fn open(
        transport: &'a Transport,
        oci: &'a Oci,
        host: &str,
        repository: &str,
        actions: &str,
        insecure: bool,
    ) -> Result<Self, Failure> {
        let scheme = if insecure { "http" } else { "https" };
        let config = oci.docker_config.as_ref();
        Ok(Self {
            transport,
            repository: parse_url(&format!("{scheme}://{host}/v2/{repository}/"))?,
            login: config.and_then(|config| config.login(host, repository)),
            realm: Realm {
                scope: format!("repository:{repository}:{actions}"),
                insecure,
            },
            authorization: None,
        })
    }

    /// Returns a manifest by its tag or digest. Bytes that do not have the requested digest are an error.
    pub(super) async fn manifest(
        &mut self,
        version: &str,
        types: &'static str,
        what: &'static str,
    ) -> Result<ManifestAnswer, Failure> {
        let url = self.url(&format!("manifests/{version}"))?;
        let accept = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(types))]);
        let answer = self.call(Method::GET, url, accept, Bytes::new()).await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(ManifestAnswer::Nothing(answer.refusal(what).await));
        }
        let (text, found) = answer
            .body_if_ok("the manifest", MANIFEST_BYTES_MAX)
            .await?;
        match version.parse::<Digest>() {
            Ok(expected) if expected != found => Err(Failure::WrongDigest {
                what: "the manifest",
                expected,
                found,
            }),
            _ => Ok(ManifestAnswer::Manifest(text, found)),
        }
    }

    /// Returns the list of manifests that refer to a manifest; none if the registry knows none.
    pub(super) async fn referrers(&mut self, digest: &Digest) -> Result<Option<Vec<u8>>, Failure> {
        let url = self.url(&format!("referrers/{digest}"))?;
        let accept = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(INDEX_TYPE))]);
        let answer = self.call(Method::GET, url, accept, Bytes::new()).await?;
        if answer.status() == StatusCode::OK {
            let (text, _) = answer
                .body_if_ok("the list of signatures", MANIFEST_BYTES_MAX)
                .await?;
            return Ok(Some(text));
        }
        // Registries without this API keep the list under a tag, where clients put it.
        let tag = format!("sha256-{}", digest.to_hex());
        match self
            .manifest(&tag, INDEX_TYPE, "the list of signatures")
            .await?
        {
            ManifestAnswer::Manifest(text, _) => Ok(Some(text)),
            ManifestAnswer::Nothing(_) => Ok(None),
        }
    }

    /// A blob of a known digest and size.
    pub(super) async fn blob(
        &mut self,
        expected: &Digest,
        what: &'static str,
        size: u64,
    ) -> Result<Vec<u8>, Failure> {
        let url = self.url(&format!("blobs/{expected}"))?;
        let answer = self
            .call(Method::GET, url.clone(), HeaderMap::new(), Bytes::new())
            .await?;
        let (bytes, found) = match answer.body_if_ok(what, size).await {
            Err(Failure::TooLarge { .. }) => {
                return Err(Failure::Protocol {
                    url: url.to_string(),
                    problem: "it sends more bytes than the manifest says",
                });
            }
            read => read?,
        };
        if *expected == found {
            Ok(bytes)
        } else {
            Err(Failure::WrongDigest {
                what,
                expected: expected.clone(),
                found,
            })
        }
    }

    /// Returns an address below the repository's.
    pub(super) fn url(&self, path: &str) -> Result<Url, Failure> {
        self.repository.join(path).map_err(|_| Failure::UrlRefused {
            url: self.repository.to_string(),
            problem: "the path below it is not valid",
        })
    }

    /// Sends a request; signs in and repeats it if the registry requires that.
    pub(super) async fn call(
        &mut self,
        method: Method,
        url: Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<HttpAnswer, Failure> {
        let ours = url.origin() == self.repository.origin();
        loop {
            let call = Call {
                method: method.clone(),
                url: url.clone(),
                headers: headers.clone(),
                credentials: self.authorization.clone().filter(|_| ours),
                body: body.clone(),
            };
            let answer = self.transport.send(call).await?;
            let from_us = answer.url().origin() == self.repository.origin();
            let must_sign_in = answer.status() == StatusCode::UNAUTHORIZED && from_us;
            if !must_sign_in || self.authorization.is_some() {
                return Ok(answer);
            }
            let challenges: Vec<String> = answer
                .headers()
                .get_all(WWW_AUTHENTICATE)
                .into_iter()
                .filter_map(|value| value.to_str().ok().map(str::to_owned))
                .collect();
            let authorization =
                token::authorize(self.transport, &challenges, &self.realm, self.login).await?;
            if authorization.is_none() {
                return Ok(answer);
            }
            self.authorization = authorization;
        }
    }
}

/// The host of a registry and the repository there. The Docker Hub has another host than its name, and `library/`
/// before the names of its own images.
fn place(oci: &Oci) -> (&str, String) {
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
