//! Runs freshness checks for a process that takes over as the writer.
//!
//! A running watch may lag by any time. It is current once it reaches a version that a quorum returned after the check
//! began. A quiet kind reaches no new version: it has no events, and a bookmark comes about once a minute. So a
//! metadata list from a quorum must show the same objects in the same versions.

use std::time::Duration;

use innkeeper_model::error_chain;
use tokio::time::{Instant, sleep};

use super::{
    fields::ObjectFields,
    machine::Since,
    shared::CacheShared,
    state::{Contents, FreshnessCheck, UncheckedWatch},
    store::ObjectKey,
    stored::ObjectIdentity,
    watch::pauses,
    wire::WireFailure,
};

/// The time for a busy kind to reach the version by events.
///
/// Short, because a quiet kind waits in vain, and all passes wait with it.
const VERSION_WAIT: Duration = Duration::from_millis(100);

/// The interval between version comparisons: a tenth of the wait, and each comparison takes the lock only for a moment.
const VERSION_INTERVAL: Duration = Duration::from_millis(10);

/// Repeats the check until the watch is current or gone.
pub(super) async fn check(shared: &CacheShared, unchecked: UncheckedWatch) {
    let mut pauses = pauses(&shared.options, shared.options.seed);
    loop {
        match attempt(shared, &unchecked).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(failure) => {
                tracing::debug!(error = %error_chain(&failure), "failed to check the freshness of a kind, trying again");
            }
        }
        sleep(pauses.delay()).await;
    }
}

async fn attempt(shared: &CacheShared, unchecked: &UncheckedWatch) -> Result<bool, WireFailure> {
    let check = shared.state.lock().table.freshness_check(unchecked);
    let target = match check {
        FreshnessCheck::Passed => return Ok(true),
        FreshnessCheck::NotListed => return Ok(false),
        FreshnessCheck::Compare(target) => target,
    };
    let version = shared.wire.version(target.clone()).await?;
    let deadline = Instant::now() + VERSION_WAIT;
    loop {
        if shared.state.lock().check_by_version(unchecked, version) {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            break;
        }
        sleep(VERSION_INTERVAL).await;
    }
    let mut contents = Contents::new();
    let keep = |object: &ObjectFields<'_>, _: Option<&str>| {
        let object = ObjectIdentity::new(object)?;
        let is_cached = target.section.covers(&object.namespace);
        let key = ObjectKey::new(&object.namespace, &object.name);
        Ok(is_cached.then_some((key, (object.uid, object.version))))
    };
    let listed = shared.wire.list(&target, Since::Now, true, keep, |page| {
        contents.extend(page.items.into_iter().flatten());
        Ok::<(), WireFailure>(())
    });
    listed.await?;
    // An event that arrives during the list makes the two differ; the next attempt compares again.
    Ok(shared.state.lock().check_by_contents(unchecked, &contents))
}
