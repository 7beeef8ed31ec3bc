//! The step before an upgrade to etcd 3.7: each member writes a snapshot with 3.6.
//!
//! etcd 3.7 ends at a log entry that 3.5 wrote. It reads none that lies behind a snapshot, so the members first restart with
//! their present image and take a snapshot at once. The startup probe of that template looks for it: a member without one
//! does not become ready, and the roll-out goes no further.

use crate::{cluster::Cluster, members::Template, observe::Observation, version::Version};

/// Returns true if the members have to write a snapshot between these versions.
pub(crate) fn needs_snapshots(current: Version, target: Version) -> bool {
    !current.is_from_minor(7) && target.is_from_minor(7)
}

/// The cluster as the answer states it: that of the spec, or the present image until all members have a snapshot.
///
/// The image of 3.7 is written only after that, so a StatefulSet that has it tells that the snapshots exist.
pub(crate) fn stated<'a>(cluster: Cluster<'a>, observation: &Observation) -> Cluster<'a> {
    let versions = observation.current_version().zip(cluster.target);
    let Some((current, _)) = versions.filter(|(from, to)| needs_snapshots(*from, *to)) else {
        return cluster;
    };
    let running = observation.running.as_ref();
    let Some(image) = running.and_then(|running| running.image("etcd")) else {
        return cluster;
    };
    let tagged = Version::of_image(image);
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
