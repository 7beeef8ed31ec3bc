//! The check of callers: the API server judges the bearer token and the right to use the path.
//!
//! Only permissions are kept, so that a caller who has none cannot push others out, and a new right counts at once.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{AUTHORIZATION, WWW_AUTHENTICATE},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use innkeeper_cluster::Permission;
use innkeeper_model::{Rate, TokenBucket, error_chain};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tracing::warn;

use super::StatusProvider;

/// The time for which a permission is kept. As long as that of controller-runtime: a scraper costs two requests a minute,
/// and a right that was taken away still counts that long.
const KEPT: Duration = Duration::from_mins(1);

/// The largest number of kept permissions. Far more than scrapers and paths.
const KEPT_MAX: usize = 64;

/// The rate of reviews, each of which is at most two requests to the API server. More than all scrapers of a cluster need;
/// a flood of unknown tokens costs the API server no more.
const REVIEWS: Rate = Rate {
    burst: 20,
    refill: Duration::from_secs(4),
};

/// A digest of a token with the request, so that no token is kept.
type Asked = [u8; 32];

/// The check of callers.
pub(super) struct Access {
    shown: Arc<dyn StatusProvider>,
    known: Mutex<Known>,
}

/// The kept permissions, and the right to ask for more.
#[derive(Default)]
struct Known {
    until: BTreeMap<Asked, Instant>,
    reviews: TokenBucket<Instant>,
}

impl Access {
    pub(super) fn new(shown: Arc<dyn StatusProvider>) -> Arc<Self> {
        Arc::new(Self {
            shown,
            known: Mutex::default(),
        })
    }

    /// Returns the refusal of a request; none if the caller may send it.
    async fn refuse(&self, token: Option<&str>, verb: &str, path: &str) -> Option<Response> {
        const NO_TOKEN: &str = "send the token of an account as `Authorization: Bearer TOKEN`\n";

        let Some(token) = token else {
            return Some(unauthorized(NO_TOKEN));
        };
        let asked = digest(token, verb, path);
        {
            let (mut known, now) = (self.known.lock(), Instant::now());
            if known.has(&asked, now) {
                return None;
            }
            if !known.may_review(now) {
                const BUSY: &str = "too many callers with unknown tokens: try again\n";
                return Some((StatusCode::TOO_MANY_REQUESTS, BUSY).into_response());
            }
        }
        let Some(reviewer) = self.shown.reviewer() else {
            const EARLY: &str = "the host has no connection to the API server yet: try again\n";
            return Some((StatusCode::SERVICE_UNAVAILABLE, EARLY).into_response());
        };
        match reviewer.review(token, verb, path).await {
            Ok(Permission::Granted) => {
                self.known.lock().keep(asked, Instant::now());
                None
            }
            Ok(Permission::Denied) => {
                let text = format!(
                    "the account may not {verb} {path}: bind it to the ClusterRole for metrics of the host's chart, or to another with this nonResourceURL\n"
                );
                Some((StatusCode::FORBIDDEN, text).into_response())
            }
            Ok(Permission::Unknown) => Some(unauthorized("the API server rejects the token\n")),
            Err(error) => {
                let error = error_chain(&error).to_string();
                warn!(error, "failed to check a caller of the admin server");
                // The caller is not known yet, so it gets no text of the API server.
                const FAILED: &str =
                    "the API server could not check the token: see the log of the host\n";
                Some((StatusCode::SERVICE_UNAVAILABLE, FAILED).into_response())
            }
        }
    }
}

impl Known {
    fn has(&self, asked: &Asked, now: Instant) -> bool {
        self.until.get(asked).is_some_and(|until| *until > now)
    }

    fn may_review(&mut self, now: Instant) -> bool {
        self.reviews.take_all(1, REVIEWS, now)
    }

    fn keep(&mut self, asked: Asked, now: Instant) {
        self.until.retain(|_, until| *until > now);
        if self.until.len() >= KEPT_MAX {
            let soonest = self
                .until
                .iter()
                .min_by_key(|(_, until)| **until)
                .map(|(asked, _)| *asked);
            soonest.map(|asked| self.until.remove(&asked));
        }
        self.until.insert(asked, now + KEPT);
    }
}

/// Answers a request only if its caller may send it.
pub(super) async fn check(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Response {
    // A request is not shared between threads, so the check gets parts of it.
    let token = bearer(request.headers()).map(str::to_owned);
    let verb = request.method().as_str().to_ascii_lowercase();
    let path = request.uri().path().to_owned();
    match access.refuse(token.as_deref(), &verb, &path).await {
        Some(refusal) => refusal,
        None => next.run(request).await,
    }
}

/// The token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn unauthorized(text: &'static str) -> Response {
    let scheme = (WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    (StatusCode::UNAUTHORIZED, [scheme], text).into_response()
}

fn digest(token: &str, verb: &str, path: &str) -> Asked {
    // No part contains a line break: all three come from the head of a request.
    Sha256::digest(format!("{verb}\n{path}\n{token}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_is_kept_for_a_minute_and_for_its_request_alone() {
        let mut known = Known::default();
        let now = Instant::now();
        let asked = digest("a", "get", "/metrics");
        assert!(!known.has(&asked, now));
        known.keep(asked, now);
        assert!(known.has(&asked, now + Duration::from_secs(59)));
        assert!(!known.has(&asked, now + KEPT));
        for other in [
            digest("b", "get", "/metrics"),
            digest("a", "put", "/metrics"),
            digest("a", "get", "/debug/log"),
        ] {
            assert!(!known.has(&other, now));
        }
    }

    #[test]
    fn the_oldest_permission_goes_for_a_new_one_above_the_maximum() {
        let mut known = Known::default();
        let begin = Instant::now();
        let second = |number: usize| begin + Duration::from_millis(u64::try_from(number).unwrap());
        let asked = |number: usize| digest(&number.to_string(), "get", "/metrics");
        for number in 0..=KEPT_MAX {
            known.keep(asked(number), second(number));
        }
        assert_eq!(known.until.len(), KEPT_MAX);
        let now = second(KEPT_MAX);
        assert!(!known.has(&asked(0), now));
        assert!(known.has(&asked(1), now) && known.has(&asked(KEPT_MAX), now));
    }

    #[test]
    fn a_flood_of_unknown_tokens_costs_few_reviews() {
        let mut known = Known::default();
        let begin = Instant::now();
        let millis = (0..10_000).map(Duration::from_millis);
        let reviews = millis.filter(|at| known.may_review(begin + *at)).count();
        // The burst, and five a second.
        assert!((65..=70).contains(&reviews), "{reviews}");
    }

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
