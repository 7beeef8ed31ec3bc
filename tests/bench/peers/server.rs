//! What the API server does for a contender, from its metrics: bytes, time in handlers, watch events, allocations.
//!
//! The times include what the handlers wait for etcd and for the processor, so only the counts and bytes are independent
//! of the machine.

use std::collections::BTreeMap;

use anyhow::Result;
use http::Request;
use innkeeper_tests::ControlPlane;
use serde::Serialize;

/// A metric whose samples become rows.
struct Source {
    metric: &'static str,
    /// The row's name, followed by the labels' values.
    name: &'static str,
    labels: &'static [&'static str],
    factor: f64,
}

/// The labels that tell requests apart.
const REQUEST: &[&str] = &["verb", "resource", "subresource"];
/// The label that tells watch events apart; the kinds of this bench have different names.
const RESOURCE: &[&str] = &["resource"];

const SOURCES: [Source; 8] = [
    Source {
        metric: "apiserver_request_duration_seconds_sum",
        name: "handler, ms:",
        labels: REQUEST,
        factor: 1e3,
    },
    Source {
        metric: "apiserver_request_body_size_bytes_sum",
        name: "request bytes:",
        labels: &["verb", "resource"],
        factor: 1.0,
    },
    Source {
        metric: "apiserver_response_sizes_sum",
        name: "response bytes:",
        labels: REQUEST,
        factor: 1.0,
    },
    Source {
        metric: "apiserver_watch_events_total",
        name: "watch events:",
        labels: RESOURCE,
        factor: 1.0,
    },
    Source {
        metric: "apiserver_watch_events_sizes_sum",
        name: "watch bytes:",
        labels: RESOURCE,
        factor: 1.0,
    },
    Source {
        metric: "etcd_request_duration_seconds_count",
        name: "etcd requests:",
        labels: &["operation"],
        factor: 1.0,
    },
    Source {
        metric: "go_memstats_alloc_bytes_total",
        name: "allocated, KiB",
        labels: &[],
        factor: 1.0 / 1024.0,
    },
    Source {
        metric: "go_memstats_mallocs_total",
        name: "allocations",
        labels: &[],
        factor: 1.0,
    },
];

/// Requests that never end, whose time says nothing.
const ENDLESS: &str = "verb=\"WATCH\"";

/// The counters of an API server, by row.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Served(BTreeMap<String, f64>);

impl Served {
    /// Reads the counters.
    #[expect(clippy::disallowed_methods, reason = "the bench reads as the user")]
    pub(crate) fn read(plane: &ControlPlane) -> Result<Self> {
        let user = plane.user();
        let request = Request::get("/metrics").body(Vec::new())?;
        let text = user.block_on(user.client().request_text(request))?;
        Ok(Self::from_metrics(&text))
    }

    fn from_metrics(text: &str) -> Self {
        let mut rows = BTreeMap::new();
        for line in text.lines() {
            let Some((sample, value)) = line.rsplit_once(' ') else {
                continue;
            };
            let (metric, labels) = sample.split_once('{').unwrap_or((sample, ""));
            let Some(source) = SOURCES.iter().find(|source| source.metric == metric) else {
                continue;
            };
            if labels.contains(ENDLESS) {
                continue;
            }
            let Ok(value) = value.parse::<f64>() else {
                continue;
            };
            *rows.entry(source.row(labels)).or_default() += value * source.factor;
        }
        Self(rows)
    }

    /// Returns the difference to an earlier state.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        for (row, value) in &mut self.0 {
            *value -= before.get(row);
        }
        self
    }

    /// Returns a row's value.
    pub(crate) fn get(&self, row: &str) -> f64 {
        self.0.get(row).copied().unwrap_or_default()
    }

    /// Returns the sum of the rows whose names begin like this.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        let rows = self.0.iter().filter(|(row, _)| row.starts_with(name));
        rows.map(|(_, value)| value).sum()
    }

    /// Returns the names of the rows with at least this value.
    pub(crate) fn rows(&self, least: f64) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(_, value)| **value >= least)
            .map(|(row, _)| &**row)
    }
}

impl Source {
    fn row(&self, labels: &str) -> String {
        let values = self.labels.iter().filter_map(|label| {
            labels
                .split(',')
                .find_map(|pair| {
                    pair.trim_end_matches('}')
                        .strip_prefix(label)?
                        .strip_prefix('=')
                })
                .map(|value| value.trim_matches('"'))
                .filter(|value| !value.is_empty())
        });
        let words: Vec<&str> = [self.name].into_iter().chain(values).collect();
        words.join(" ")
    }
}
