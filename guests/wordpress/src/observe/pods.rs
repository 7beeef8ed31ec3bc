//! The Pods of a workload that is not ready, and why.

use innkeeper_sdk::{host::ReadError, labels, prelude::*};
use serde::Deserialize;

use crate::site::Site;

/// A reason for which the container of the database wrote its termination message: the scripts of the Pod name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server runs, and refuses the site's user or has no schema.
    UserMissing,
    /// The image cannot set a password of the Secret.
    UnusablePassword,
    /// The image lacks the entrypoint or the server.
    UnsupportedImage,
}

/// The fields that are read of a Pod.
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
#[serde(default)]
struct Waiting {
    reason: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Terminated {
    message: String,
}

/// The Pods of one component of a site.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pods(Vec<Pod>);

impl Pods {
    /// Reads the Pods. Without the grant there are none: they only explain what the workload tells.
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

    /// Why the database does not become ready, if its container has told it.
    pub(crate) fn failure(&self) -> Option<Failure> {
        let containers = self.0.iter().flat_map(|pod| &pod.status.container_statuses);
        containers
            .flat_map(|container| [&container.state, &container.last_state])
            .filter_map(|state| state.terminated.as_ref())
            .find_map(|terminated| match terminated.message.trim() {
                "UserMissing" => Some(Failure::UserMissing),
                "UnusablePassword" => Some(Failure::UnusablePassword),
                "UnsupportedImage" => Some(Failure::UnsupportedImage),
                _ => None,
            })
    }

    /// The first Pod with a container that waits for something else than its turn, and the reason.
    pub(crate) fn waiting(&self) -> Option<String> {
        self.0.iter().find_map(|pod| {
            let status = &pod.status;
            let containers = status
                .init_container_statuses
                .iter()
                .chain(&status.container_statuses);
            let reasons = containers.filter_map(|container| container.state.waiting.as_ref());
            let reason = reasons
                .map(|waiting| &*waiting.reason)
                .find(|reason| !["", "ContainerCreating", "PodInitializing"].contains(reason))?;
            Some(format!("Pod {}: {reason}", pod.metadata.name))
        })
    }
}
