//! Cached permissions and rate limits for reviews. Pure: callers pass the time.
//!
//! A review costs the API server up to two requests, so reviews are rate-limited. A token that the API server accepted
//! within the last hour has a separate limit, which no other caller can use up. All unknown tokens share one limit, and
//! each client address has a part of it.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

use innkeeper_model::{Rate, TokenBucket};
use sha2::{Digest as _, Sha256};

/// How long a permission is cached, as in controller-runtime: a scraper costs two requests a minute, and revoked rights
/// apply this much longer.
const PERMISSION_TIME: Duration = Duration::from_mins(1);

/// The maximum number of cached permissions: far more than scrapers and paths.
const PERMISSIONS_MAX: usize = 64;

/// How long a token is known after the last permission. Accounts get a new token about once an hour.
const KNOWN_TIME: Duration = Duration::from_hours(1);

/// The maximum number of known tokens: far more than scrapers.
const KNOWN_MAX: usize = 64;

/// The limit for all unknown tokens: a flood costs the API server at most five reviews a second.
const UNKNOWN: Rate = Rate {
    burst: 40,
    refill: Duration::from_secs(8),
};

/// The limit for one known token, or for one address's unknown tokens. One review per 15 s, the usual scrape interval, so
/// that an unauthorized scraper always gets the right error.
const SHARE: Rate = Rate {
    burst: 20,
    refill: Duration::from_mins(5),
};

/// A digest, because no token must stay in memory.
type Sha = [u8; 32];

/// Digests of a caller's token and request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    token: Sha,
    request: Sha,
    address: IpAddr,
}

/// A token that the API server accepted.
#[derive(Debug)]
struct Known {
    until: Instant,
    reviews: TokenBucket<Instant>,
}

/// Cached permissions and the state of the rate limits.
#[derive(Debug, Default)]
pub(super) struct Callers {
    permissions: BTreeMap<Sha, Instant>,
    known: BTreeMap<Sha, Known>,
    /// Shares that are not full. Each address had a review within a share's refill time, so [`UNKNOWN`] bounds their number.
    addresses: BTreeMap<IpAddr, TokenBucket<Instant>>,
    unknown: TokenBucket<Instant>,
}

impl Caller {
    pub(super) fn new(token: &str, verb: &str, path: &str, address: IpAddr) -> Self {
        Self {
            token: Sha256::digest(token).into(),
            // Unambiguous: parts of a request's head contain no line break.
            request: Sha256::digest(format!("{verb}\n{path}\n{token}")).into(),
            address: share_address(address),
        }
    }
}

impl Callers {
    /// Returns true if the caller has a permission for the request.
    pub(super) fn has_permission(&self, caller: &Caller, now: Instant) -> bool {
        self.permissions
            .get(&caller.request)
            .is_some_and(|until| *until > now)
    }

    /// Takes a review from the caller's share; returns false if none is left.
    pub(super) fn take_review(&mut self, caller: &Caller, now: Instant) -> bool {
        if let Some(known) = self.known.get_mut(&caller.token)
            // Expired tokens stay in the map until a new one is permitted.
            && known.until > now
        {
            return known.reviews.take_all(1, SHARE, now);
        }
        // A copy: a refused request leaves no entry, so a flood from many addresses needs no memory.
        let mut share = self
            .addresses
            .get(&caller.address)
            .copied()
            .unwrap_or_default();
        // The more reviews an address has taken, the more must be left in total: the last ones are for new addresses.
        let taken = SHARE.burst - share.available(SHARE, now);
        if self.unknown.available(UNKNOWN, now) <= taken || !share.take_all(1, SHARE, now) {
            return false;
        }
        // Only a new address adds an entry, so only then does anything need to be removed.
        if taken == 0 {
            self.addresses
                .retain(|_, share| share.available(SHARE, now) < SHARE.burst);
        }
        self.addresses.insert(caller.address, share);
        self.unknown.take_all(1, UNKNOWN, now)
    }

    /// Caches a permission, and remembers the token.
    pub(super) fn permit(&mut self, caller: &Caller, now: Instant) {
        self.permissions.retain(|_, until| *until > now);
        remove_first_above(&mut self.permissions, PERMISSIONS_MAX, |until| *until);
        self.permissions
            .insert(caller.request, now + PERMISSION_TIME);
        let until = now + KNOWN_TIME;
        if let Some(known) = self.known.get_mut(&caller.token) {
            // Keeps the share as it is: a permission must not refill it.
            known.until = until;
            return;
        }
        self.known.retain(|_, known| known.until > now);
        remove_first_above(&mut self.known, KNOWN_MAX, |known| known.until);
        let reviews = TokenBucket::default();
        self.known.insert(caller.token, Known { until, reviews });
    }

    /// Forgets a token that the API server rejected.
    pub(super) fn forget(&mut self, caller: &Caller) {
        self.known.remove(&caller.token);
    }
}

/// Makes room for one more entry by removing the one that expires first.
fn remove_first_above<T>(
    entries: &mut BTreeMap<Sha, T>,
    max: usize,
    until: impl Fn(&T) -> Instant,
) {
    if entries.len() < max {
        return;
    }
    let first = entries
        .iter()
        .min_by_key(|(_, entry)| until(entry))
        .map(|(key, _)| *key);
    if let Some(key) = first {
        entries.remove(&key);
    }
}

/// Returns the address for rate limits: for IPv6 the /64 network, because one client usually owns all of it.
pub(in crate::admin) fn share_address(address: IpAddr) -> IpAddr {
    // IPv4 clients of a dual-stack socket have addresses in ::ffff:0:0/96 and would all share one /64.
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            Ipv6Addr::from_bits(network).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: (&str, &str) = ("get", "/metrics");

    fn caller(token: &str, address: &str) -> Caller {
        let (verb, path) = METRICS;
        Caller::new(token, verb, path, address.parse().unwrap())
    }

    #[test]
    fn a_permission_is_kept_for_a_minute_and_for_its_request_alone() {
        let mut callers = Callers::default();
        let now = Instant::now();
        let address = IpAddr::from([10, 0, 0, 1]);
        let scraper = Caller::new("a", "get", "/metrics", address);
        assert!(!callers.has_permission(&scraper, now));
        callers.permit(&scraper, now);
        assert!(callers.has_permission(&scraper, now + Duration::from_secs(59)));
        assert!(!callers.has_permission(&scraper, now + PERMISSION_TIME));
        for (token, verb, path) in [
            ("b", "get", "/metrics"),
            ("a", "put", "/metrics"),
            ("a", "get", "/debug/log"),
        ] {
            let other = Caller::new(token, verb, path, address);
            assert!(!callers.has_permission(&other, now));
        }
    }

    #[test]
    fn the_oldest_permission_and_token_go_for_new_ones_above_the_maximum() {
        let mut callers = Callers::default();
        let begin = Instant::now();
        let at = |number: usize| begin + Duration::from_millis(u64::try_from(number).unwrap());
        let scraper = |number: usize| caller(&number.to_string(), "10.0.0.1");
        for number in 0..=KNOWN_MAX {
            callers.permit(&scraper(number), at(number));
        }
        assert_eq!(callers.permissions.len(), PERMISSIONS_MAX);
        assert_eq!(callers.known.len(), KNOWN_MAX);
        let now = at(KNOWN_MAX);
        for (number, is_kept) in [(0, false), (1, true), (KNOWN_MAX, true)] {
            assert_eq!(callers.has_permission(&scraper(number), now), is_kept);
            assert_eq!(callers.known.contains_key(&scraper(number).token), is_kept);
        }
    }

    /// Floods for two minutes: every 10 ms, the next address sends an unknown token. Returns the number of reviews.
    fn flood(
        callers: &mut Callers,
        addresses: &[String],
        mut beside: impl FnMut(&mut Callers, Instant),
    ) -> usize {
        let begin = Instant::now();
        let mut reviews = 0;
        for step in 0..12_000_u32 {
            let now = begin + Duration::from_millis(10) * step;
            let address = &addresses[usize::try_from(step).unwrap() % addresses.len()];
            let unknown = caller(&format!("unknown {step}"), address);
            assert!(!callers.has_permission(&unknown, now));
            reviews += usize::from(callers.take_review(&unknown, now));
            beside(callers, now);
        }
        reviews
    }

    fn addresses(number: usize) -> Vec<String> {
        let address = |number| format!("10.1.{}.{}", number / 256, number % 256);
        (0..number).map(address).collect()
    }

    /// Scrapes as the server checks them, and asserts that each one succeeds.
    #[track_caller]
    fn scrape(callers: &mut Callers, scraper: &Caller, now: Instant) {
        if !callers.has_permission(scraper, now) {
            assert!(callers.take_review(scraper, now), "{scraper:?}");
            callers.permit(scraper, now);
        }
    }

    #[test]
    fn a_flood_of_unknown_tokens_locks_out_no_scraper() {
        for number in [1, 3, 39] {
            let mut callers = Callers::default();
            let addresses = addresses(number);
            // One scraper shares an address with the flood, and was accepted before.
            let known_caller = caller("known", &addresses[0]);
            callers.permit(&known_caller, Instant::now());
            let mut newcomers = 0..;
            let mut scrapes = 0;
            let reviews = flood(&mut callers, &addresses, |callers, now| {
                scrape(callers, &known_caller, now);
                scrapes += 1;
                // Every ten seconds another address scrapes for the first time.
                if scrapes % 1000 == 0 {
                    let address = format!("10.2.0.{}", newcomers.next().unwrap());
                    scrape(callers, &caller("new", &address), now);
                }
            });
            assert_eq!((scrapes, newcomers.start), (12_000, 12));
            assert!((20..=640).contains(&reviews), "{number}: {reviews}");
        }
    }

    #[test]
    fn unknown_tokens_of_many_addresses_cost_five_reviews_a_second_and_little_memory() {
        for number in [100, 12_000] {
            let mut callers = Callers::default();
            let mut largest = 0;
            let reviews = flood(&mut callers, &addresses(number), |callers, _| {
                largest = largest.max(callers.addresses.len());
            });
            assert!((600..=640).contains(&reviews), "{number}: {reviews}");
            // The burst, and five a second until a share gains a review.
            assert!(largest <= 40 + 5 * 16, "{number}: {largest}");
            assert!(callers.known.is_empty() && callers.permissions.is_empty());
        }
    }

    #[test]
    fn a_known_token_has_its_own_share_for_an_hour_or_until_it_is_refused() {
        let begin = Instant::now();
        let scraper = caller("a", "10.0.0.1");
        let spent = || {
            let mut callers = Callers::default();
            callers.permit(&scraper, begin);
            while callers.take_review(&caller("b", "10.0.0.1"), begin) {}
            callers
        };
        let mut callers = spent();
        let reviews = (0..100).filter(|_| callers.take_review(&scraper, begin));
        assert_eq!(u64::try_from(reviews.count()).unwrap(), SHARE.burst);
        let mut callers = spent();
        callers.forget(&scraper);
        assert!(!callers.take_review(&scraper, begin));
        let end = begin + KNOWN_TIME;
        for (at, is_known) in [
            (end.checked_sub(Duration::from_millis(1)).unwrap(), true),
            (end, false),
        ] {
            let mut callers = spent();
            while callers.take_review(&caller("b", "10.0.0.1"), at) {}
            assert_eq!(callers.take_review(&scraper, at), is_known);
        }
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        for (address, expected) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2::9", "2001:db8:1:2::"),
            ("2001:db8:1:3::9", "2001:db8:1:3::"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            let expected: IpAddr = expected.parse().unwrap();
            assert_eq!(share_address(address), expected);
        }
    }
}
