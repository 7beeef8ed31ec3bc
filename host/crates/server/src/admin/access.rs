//! Checks callers: the API server authenticates the bearer token and authorizes the path.
//!
//! Only permissions are cached, so that unauthorized callers cannot evict others, and new rights apply immediately.

mod callers;

use std::{net::IpAddr, sync::Arc, time::Instant};

use axum::{
    Extension,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{AUTHORIZATION, WWW_AUTHENTICATE},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use innkeeper_cluster::Permission;
use innkeeper_model::error_chain;
use parking_lot::Mutex;
use tracing::warn;

use super::{StatusProvider, connections::ClientAddress};
use callers::{Caller, Callers};

pub(super) use callers::share_address;

/// Checks callers.
pub(super) struct Access {
    provider: Arc<dyn StatusProvider>,
    callers: Mutex<Callers>,
}

impl Access {
    pub(super) fn new(provider: Arc<dyn StatusProvider>) -> Arc<Self> {
        Arc::new(Self {
            provider,
            callers: Mutex::default(),
        })
    }

    /// Returns the refusal; none if the caller may send the request.
    async fn refuse(
        &self,
        token: Option<&str>,
        verb: &str,
        path: &str,
        address: IpAddr,
    ) -> Option<Response> {
        const NO_TOKEN: &str = "send the token of an account as `Authorization: Bearer TOKEN`\n";

        let Some(token) = token else {
            return Some(unauthorized(NO_TOKEN));
        };
        let caller = Caller::new(token, verb, path, address);
        {
            // Released before the review, which takes as long as the API server.
            let mut callers = self.callers.lock();
            let now = Instant::now();
            if callers.has_permission(&caller, now) {
                return None;
            }
            // Before the review, so that concurrent requests cannot exceed the rate.
            if !callers.take_review(&caller, now) {
                const BUSY: &str =
                    "too many requests with unknown tokens from this address: try again\n";
                return Some((StatusCode::TOO_MANY_REQUESTS, BUSY).into_response());
            }
        }
        let Some(reviewer) = self.provider.reviewer() else {
            const EARLY: &str = "the host has no connection to the API server yet: try again\n";
            return Some((StatusCode::SERVICE_UNAVAILABLE, EARLY).into_response());
        };
        match reviewer.review(token, verb, path).await {
            Ok(Permission::Granted) => {
                self.callers.lock().permit(&caller, Instant::now());
                None
            }
            Ok(Permission::Denied) => {
                // Not cached: a new role binding applies to the next request.
                let text = format!(
                    "the account may not {verb} {path}: bind it to the chart's ClusterRole for metrics, or to another one with this nonResourceURL\n"
                );
                Some((StatusCode::FORBIDDEN, text).into_response())
            }
            Ok(Permission::Unknown) => {
                // A deleted account's token must not keep a separate share.
                self.callers.lock().forget(&caller);
                Some(unauthorized("the API server rejects the token\n"))
            }
            Err(error) => {
                let error = error_chain(&error).to_string();
                warn!(error, "failed to check a caller of the admin server");
                // An unknown caller must not see the API server's error.
                const FAILED: &str =
                    "the API server could not check the token: see the log of the host\n";
                Some((StatusCode::SERVICE_UNAVAILABLE, FAILED).into_response())
            }
        }
    }
}

/// Passes on a request if the caller may send it.
pub(super) async fn check(
    State(access): State<Arc<Access>>,
    Extension(ClientAddress(address)): Extension<ClientAddress>,
    request: Request,
    next: Next,
) -> Response {
    // Request is not Sync, so the check gets copies of its parts.
    let token = bearer(request.headers()).map(str::to_owned);
    // Rules with nonResourceURLs have HTTP methods in lower case.
    let verb = request.method().as_str().to_ascii_lowercase();
    let path = request.uri().path().to_owned();
    let refusal = access.refuse(token.as_deref(), &verb, &path, address);
    match refusal.await {
        Some(refusal) => refusal,
        None => next.run(request).await,
    }
}

/// Returns the request's token.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    // RFC 9110: the scheme is case-insensitive.
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn unauthorized(text: &'static str) -> Response {
    // RFC 9110 requires this header in every 401.
    let scheme = (WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    (StatusCode::UNAUTHORIZED, [scheme], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bearer_token_counts() {
        for (header, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic abc", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(header));
            assert_eq!(bearer(&headers), token, "{header}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
