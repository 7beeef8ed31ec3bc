//! Questions about the callers of the host: the user of a bearer token, and the user's permission.
//!
//! The API server takes them as creates of a TokenReview and of a SubjectAccessReview, which store nothing. So they are
//! reads, and belong here. Nothing is cached.

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
    options::Options,
    wire::{Wire, WireFailure},
};

/// Asks the API server about callers.
pub struct Reviewer(Wire);

/// The verdict on a request of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// The caller may do it.
    Granted,
    /// The API server knows the caller, who may not do it.
    Denied,
    /// The API server does not accept the token.
    Unknown,
}

impl Reviewer {
    /// Creates a reviewer; `timeout` bounds each of its two requests.
    pub fn new(client: kube::Client, timeout: Duration) -> Self {
        let options = Options {
            request_timeout: timeout,
            ..Options::new(0)
        };
        Self(Wire::new(client, options))
    }

    /// Returns the permission of the user with this bearer token to use a path that is no resource of Kubernetes.
    /// The verb is a method of HTTP in lower case.
    pub async fn review(&self, token: &str, verb: &str, path: &str) -> Result<Permission, Error> {
        let Some(user) = self.user(token).await? else {
            return Ok(Permission::Unknown);
        };
        let is_permitted = self.may(user, verb, path).await?;
        Ok(if is_permitted {
            Permission::Granted
        } else {
            Permission::Denied
        })
    }

    /// Returns the user of a token; none if the API server does not accept it.
    async fn user(&self, token: &str) -> Result<Option<UserInfo>, Error> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let status = self.ask(&review).await?.status.unwrap_or_default();
        let is_known = status.authenticated == Some(true);
        Ok(status.user.filter(|_| is_known))
    }

    async fn may(&self, user: UserInfo, verb: &str, path: &str) -> Result<bool, Error> {
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
        let status = self.ask(&review).await?.status;
        Ok(status.is_some_and(|it| it.allowed && it.denied != Some(true)))
    }

    async fn ask<R: Resource + Serialize + DeserializeOwned>(
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
