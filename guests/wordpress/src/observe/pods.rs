//! A workload's Pods, and why it is not ready.

use innkeeper_kit::prelude::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::site::Site;

/// Why the database container failed, from the termination message; the Pod's scripts use these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server runs but rejects the site's user or has no schema.
    UserMissing,
    /// The image cannot set a password from the Secret.
    UnusablePassword,
    /// The image lacks the entrypoint or the server.
    UnsupportedImage,
}

/// Longest time from a failed startup until the container ends: a last probe and the grace period.
const ENDING_SECONDS: i64 = 180;

/// The Pod fields that the plugin reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Pod {
    metadata: Metadata,
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    init_container_statuses: Vec<ContainerStatus>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerStatus {
    state: State,
    last_state: State,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    waiting: Option<Waiting>,
    terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Terminated {
    message: String,
    started_at: Option<Time>,
    finished_at: Option<Time>,
}

impl Terminated {
    /// The container's running time in seconds.
    fn seconds(&self) -> Option<i64> {
        let start = self.started_at.as_ref()?;
        let end = self.finished_at.as_ref()?;
        Some(end.0.duration_since(start.0).as_secs())
    }
}

/// The Pods of one site component.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pods(Vec<Pod>);

impl Pods {
    /// Reads the Pods. Without the grant there are none: they only explain the workload's state.
    pub(crate) fn read(
        request: &Request,
        host: &dyn Host,
        site: &Site<'_>,
        component: &str,
    ) -> Result<Self, Fault> {
        let selector = labels::selector_text(&site.labels(component));
        match host.list_as("v1", "Pod", Some(request.namespace()), &selector) {
            Ok(pods) => Ok(Self(pods)),
            Err(ReadError::NotGranted { .. }) => Ok(Self::default()),
            Err(denied) => Err(denied.into()),
        }
    }

    /// Why the database does not become ready, if the container has reported it.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.0
            .iter()
            .flat_map(|pod| &pod.status.container_statuses)
            .flat_map(|container| [&container.state, &container.last_state])
            .filter_map(|state| state.terminated.as_ref())
            .find_map(|terminated| match terminated.message.trim() {
                "UserMissing" => Some(Failure::UserMissing),
                "UnusablePassword" => Some(Failure::UnusablePassword),
                "UnsupportedImage" => Some(Failure::UnsupportedImage),
                _ => None,
            })
    }

    /// A Pod whose container was killed because it did not start in time. The status does not say so, but the
    /// container's running time does.
    pub(crate) fn late(&self, startup_seconds: i32) -> Option<String> {
        let limit = i64::from(startup_seconds);
        let is_late = |seconds: i64| (limit..limit + ENDING_SECONDS).contains(&seconds);
        self.0.iter().find_map(|pod| {
            let is_late = pod.status.container_statuses.iter().any(|container| {
                container.last_state.terminated.as_ref().and_then(Terminated::seconds).is_some_and(is_late)
            });
            let name = &pod.metadata.name;
            is_late.then(|| {
                format!(
                    "Pod {name} had not started after {limit} s and starts again: if it needs longer, raise \
                     database.managed.startupSeconds"
                )
            })
        })
    }

    /// The first Pod with a waiting container, and the reason.
    pub(crate) fn waiting(&self) -> Option<String> {
        self.0.iter().find_map(|pod| {
            let status = &pod.status;
            let reason = status
                .init_container_statuses
                .iter()
                .chain(&status.container_statuses)
                .filter_map(|container| container.state.waiting.as_ref())
                .find_map(Waiting::cause)?;
            Some(format!("Pod {}: {reason}", pod.metadata.name))
        })
    }
}
