//! A relay's rules, and how they match requests and answers.
//!
//! Without sockets or clock: a match depends only on the requests so far.

use std::time::Duration;

use serde_json::json;

/// The requests to which a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct On {
    pub(crate) verb: Verb,
    /// A substring of the path without the query; empty for every path.
    pub(crate) path: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Any,
    /// Every read except a watch.
    Read,
    Watch,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The relay answers, and the API server never receives the request.
    Answer {
        code: u16,
        /// Seconds, for the header `Retry-After`.
        retry_after: Option<u32>,
    },
    /// The relay answers the watch with an error event: the version is too old (410).
    Expire,
    /// The API server executes the request, and the relay closes the connection without an answer.
    Lose,
    /// The API server executes the request, and the relay answers with a timeout (504).
    GiveUp,
    /// Delays each piece of the answer by this many milliseconds.
    Late(u64),
    /// Nothing passes, in either direction, until the rules are cleared.
    Hold,
    /// Only this many bytes of the answer pass.
    Cut { after: usize, end: End },
    /// The relay answers with these bytes, including the header, and closes the connection; the API
    /// server never receives the request.
    Forge(&'static [u8]),
    /// The API server executes the request, and the relay answers with these bytes, including the
    /// header.
    Replace(&'static [u8]),
    /// The relay sends an endless answer, and the API server never receives the request.
    Flood,
    /// The relay removes the request for bookmarks from a watch.
    NoBookmarks,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// An orderly close, as far as TCP can tell.
    Close,
    Reset,
    /// The connection stays open, without more data.
    Silence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) on: On,
    /// Acts on every n-th request that matches.
    pub(crate) every: u32,
    /// Acts at most this many times.
    pub(crate) times: u32,
    pub(crate) action: Action,
}

impl Rule {
    /// A rule that acts on every request that matches.
    pub(crate) const fn always(on: On, action: Action) -> Self {
        Self {
            on,
            every: 1,
            times: u32::MAX,
            action,
        }
    }
}

impl On {
    /// Matches a request's first line.
    pub(crate) fn matches(self, line: &str) -> bool {
        let path = line.split(['?', ' ']).nth(1).unwrap_or_default();
        let is_watch = line.contains("watch=");
        let is_verb = match self.verb {
            Verb::Any => true,
            Verb::Read => line.starts_with("GET ") && !is_watch,
            Verb::Watch => is_watch,
            Verb::Write => is_write(line),
        };
        is_verb && path.contains(self.path)
    }
}

/// Returns true if a request changes an object. An access review is a POST that changes nothing.
pub(crate) fn is_write(line: &str) -> bool {
    !line.starts_with("GET ") && !line.contains("accessreviews")
}

/// Rules in order of precedence: the first match decides.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    active: Vec<Active>,
}

#[derive(Debug)]
struct Active {
    rule: Rule,
    /// The number of requests that matched.
    asked: u32,
    /// How often the rule acted.
    met: u32,
}

impl Active {
    fn take(&mut self) -> bool {
        self.asked += 1;
        let is_met = self.met < self.rule.times && self.asked.is_multiple_of(self.rule.every);
        self.met += u32::from(is_met);
        is_met
    }
}

impl Rules {
    pub(crate) fn add(&mut self, rule: Rule) {
        self.active.push(Active {
            rule,
            asked: 0,
            met: 0,
        });
    }

    pub(crate) fn clear(&mut self) {
        self.active.clear();
    }

    /// Returns the action for a request before the API server receives it.
    pub(crate) fn request(&mut self, line: &str) -> Option<Action> {
        self.first(line, |action| {
            matches!(
                action,
                Action::Answer { .. }
                    | Action::Expire
                    | Action::Lose
                    | Action::GiveUp
                    | Action::Forge(_)
                    | Action::Replace(_)
                    | Action::Flood
                    | Action::NoBookmarks
            )
        })
    }

    /// Returns after how many bytes, and how, to end an answer. The relay asks for each piece until a
    /// rule matches.
    pub(crate) fn cut(&mut self, line: &str) -> Option<(usize, End)> {
        match self.first(line, |action| matches!(action, Action::Cut { .. }))? {
            Action::Cut { after, end } => Some((after, end)),
            _ => None,
        }
    }

    /// Returns the delay for each piece of an answer.
    pub(crate) fn late(&self, line: &str) -> Duration {
        let late = self
            .active
            .iter()
            .filter(|active| active.rule.on.matches(line))
            .filter_map(|active| match active.rule.action {
                Action::Late(milliseconds) => Some(milliseconds),
                _ => None,
            });
        Duration::from_millis(late.max().unwrap_or_default())
    }

    /// Returns true while a request and the answer may not pass.
    pub(crate) fn holds(&self, line: &str) -> bool {
        self.active
            .iter()
            .any(|active| active.rule.action == Action::Hold && active.rule.on.matches(line))
    }

    fn first(&mut self, line: &str, is_meant: impl Fn(Action) -> bool) -> Option<Action> {
        self.active
            .iter_mut()
            .filter(|active| is_meant(active.rule.action) && active.rule.on.matches(line))
            .find_map(|active| active.take().then_some(active.rule.action))
    }
}

/// Imitates the API server's answer with this code.
pub(crate) fn answer(code: u16, retry_after: Option<u32>) -> Vec<u8> {
    let wait = retry_after.map_or_else(String::new, |after| format!("Retry-After: {after}\r\n"));
    message(code, &wait, &status(code))
}

/// The start of an answer without a length, which ends with the connection.
pub(crate) const FLOOD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{\"metadata\": \"";

/// Imitates the API server's answer to a watch whose version is too old.
pub(crate) fn expired() -> Vec<u8> {
    let line = format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status(410));
    message(200, "", &line)
}

fn message(code: u16, header: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {code} Answer\r\nContent-Type: application/json\r\n{header}Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

fn status(code: u16) -> String {
    let (reason, message) = match code {
        401 => ("Unauthorized", "Unauthorized"),
        403 => (
            "Forbidden",
            "it is forbidden: User cannot patch resource in API group",
        ),
        410 => ("Expired", "The resourceVersion is too old."),
        429 => ("TooManyRequests", "storage is (re)initializing"),
        503 => ("ServiceUnavailable", "apiserver not ready"),
        504 => (
            "Timeout",
            "request did not complete within the allotted timeout",
        ),
        _ => ("InternalError", "Internal error occurred"),
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "PATCH /apis/apps/v1/namespaces/a/deployments/web?fieldManager=x HTTP/1.1";
    const WATCH: &str = "GET /apis/apps/v1/deployments?watch=true HTTP/1.1";
    const LIST: &str = "GET /apis/apps/v1/deployments?limit=500 HTTP/1.1";
    const REVIEW: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1";

    #[test]
    fn rules_match_verbs_and_paths() {
        let matches = |verb, path, line| On { verb, path }.matches(line);
        for (verb, lines) in [
            (Verb::Any, [true, true, true]),
            (Verb::Write, [true, false, false]),
            (Verb::Watch, [false, true, false]),
            (Verb::Read, [false, false, true]),
        ] {
            let met = [PATCH, WATCH, LIST].map(|line| matches(verb, "/deployments", line));
            assert_eq!(met, lines, "{verb:?}");
        }
        assert!(!matches(Verb::Any, "/services", PATCH));
        assert!(!matches(Verb::Any, "fieldManager", PATCH));
        assert!(!matches(Verb::Write, "", REVIEW));
    }

    #[test]
    fn a_rule_acts_as_often_as_it_states() {
        let mut rules = Rules::default();
        let on = On {
            verb: Verb::Write,
            path: "",
        };
        rules.add(Rule {
            on,
            every: 2,
            times: 2,
            action: Action::Lose,
        });
        let met: Vec<bool> = (0..6)
            .map(|_| rules.request(PATCH) == Some(Action::Lose))
            .collect();
        assert_eq!(met, [false, true, false, true, false, false]);
        assert_eq!(rules.cut(PATCH), None);
        rules.add(Rule::always(on, Action::Late(5)));
        rules.add(Rule::always(on, Action::Hold));
        assert_eq!(rules.late(PATCH), Duration::from_millis(5));
        assert!(rules.holds(PATCH) && !rules.holds(WATCH));
        rules.clear();
        assert!(!rules.holds(PATCH));
    }
}
