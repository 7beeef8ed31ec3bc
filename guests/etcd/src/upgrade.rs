//! Forces a snapshot on 3.6 before an upgrade to 3.7.
//!
//! etcd 3.7 exits at a log entry that 3.5 wrote, but reads no entries before a snapshot. So the members first restart
//! with their current image and write a snapshot at once. That template's startup probe looks for the snapshot: a
//! member without one does not become ready, and the rollout stops there.

use crate::{cluster::Cluster, members::Template, observe::Observation, version::Version};

/// True if an upgrade between these versions needs snapshots first.
pub(crate) fn needs_snapshots(current: Version, target: Version) -> bool {
    !current.is_from_minor(7) && target.is_from_minor(7)
}

/// The cluster to answer with: the spec's, or the current image until all members have a snapshot.
pub(crate) fn effective_cluster<'a>(
    cluster: Cluster<'a>,
    observation: &Observation,
) -> Cluster<'a> {
    let versions = observation.current_version().zip(cluster.target);
    let Some((current, _)) = versions.filter(|(from, to)| needs_snapshots(*from, *to)) else {
        return cluster;
    };
    let running = observation.running.as_ref();
    let Some(image) = running.and_then(|running| running.image("etcd")) else {
        return cluster;
    };
    let tagged = Version::from_image(image);
    // A StatefulSet with a 3.7 image proves that the snapshots exist, because it is written only after them.
    if image == cluster.image || tagged.is_some_and(|version| needs_snapshots(current, version)) {
        return cluster;
    }
    let preparing = Cluster {
        image: image.to_owned(),
        preparing: Some(tagged.unwrap_or(current)),
        ..cluster.clone()
    };
    let members = observation.record.as_ref().map(|record| &record.members);
    let is_whole = members.is_some_and(|members| members.is_subset(&observation.ready()));
    if is_whole && Template::new(&preparing, observation).is_rolled_out() {
        return cluster;
    }
    preparing
}
