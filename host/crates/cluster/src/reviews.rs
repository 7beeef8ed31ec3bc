//! Authenticates and authorizes the host's callers: a bearer token's user, and that user's permission.
//!
//! Both are creates, of a TokenReview and a SubjectAccessReview, but the API server stores nothing. So they are reads
//! and belong here. Nothing is cached.

use std::time::Duration;

use k8s_openapi::{
    Resource,
    api::{
        authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
        authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    },
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    error::Error,
    wire::{Wire, WireFailure},
};

/// Authenticates and authorizes callers through the API server.
pub struct Reviewer(Wire);

/// The verdict on a caller's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// The caller has the permission.
    Granted,
    /// The API server knows the caller, who lacks the permission.
    Denied,
    /// The API server does not accept the token.
    Unknown,
}

impl Reviewer {
    /// Creates a reviewer; `timeout` bounds each request.
    pub fn new(client: kube::Client, timeout: Duration) -> Self {
        Self(Wire::with_timeout(client, timeout))
    }

    /// Returns whether the bearer token's user may use a non-resource path. The verb is an HTTP method in lower case.
    pub async fn review(&self, token: &str, verb: &str, path: &str) -> Result<Permission, Error> {
        let Some(user) = self.user(token).await? else {
            return Ok(Permission::Unknown);
        };
        let is_permitted = self.is_permitted(user, verb, path).await?;
        Ok(if is_permitted {
            Permission::Granted
        } else {
            Permission::Denied
        })
    }

    /// Returns a token's user; none if the API server does not accept the token.
    async fn user(&self, token: &str) -> Result<Option<UserInfo>, Error> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let status = self.create(&review).await?.status.unwrap_or_default();
        let is_authenticated = status.authenticated == Some(true);
        Ok(status.user.filter(|_| is_authenticated))
    }

    async fn is_permitted(&self, user: UserInfo, verb: &str, path: &str) -> Result<bool, Error> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.to_owned()),
                    verb: Some(verb.to_owned()),
                }),
                resource_attributes: None,
            },
            ..SubjectAccessReview::default()
        };
        let status = self.create(&review).await?.status;
        Ok(status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }

    async fn create<R: Resource + Serialize + DeserializeOwned>(
        &self,
        review: &R,
    ) -> Result<R, Error> {
        let failed = |source| Error::Review {
            kind: R::KIND,
            source,
        };
        let body = serde_json::to_vec(review).map_err(|source| failed(source.into()))?;
        let path = format!("/apis/{}/{}", R::API_VERSION, R::URL_PATH_SEGMENT);
        let text = self.0.review(&path, body).await.map_err(failed)?;
        serde_json::from_str(&text).map_err(|source| failed(WireFailure::from(source)))
    }
}
