//! Runs freshness checks, for a process that starts to write after another one.
//!
//! A running watch may lag by any time. It is current once it reaches a version that a quorum returned after the check
//! began. A quiet kind reaches no new version: it has no events, and a bookmark comes about once a minute. So its
//! metadata list from a quorum must show the same objects in the same versions.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_model::{ResourceVersion, Uid};
use tokio::time::{Instant, sleep};

use super::{
    error::chain,
    fields::ObjectFields,
    machine::Since,
    shared::CacheShared,
    state::{FreshnessCheck, UncheckedWatch},
    store::ObjectKey,
    stored::ObjectIdentity,
    watch::pauses,
    wire::{Page, WatchTarget, WireFailure},
};

/// The objects of a kind and their versions, as a quorum shows them.
pub(super) type Contents = BTreeMap<ObjectKey, (Uid, ResourceVersion)>;

/// The time in which a busy kind reaches the version by its own events.
///
/// Short, because a quiet kind waits for it in vain before it is listed, and all passes of a new leader wait too. Chosen, not
/// measured.
const MOVES_ON_WITHIN: Duration = Duration::from_millis(100);

/// The interval between two checks of the version: a tenth of the wait, and each takes the lock only for a moment.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(10);

/// Repeats the check until the watch is current or gone.
pub(super) async fn check(shared: &CacheShared, unchecked: UncheckedWatch) {
    let mut pauses = pauses(&shared.options, shared.options.seed);
    loop {
        match attempt(shared, &unchecked).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(failure) => {
                tracing::debug!(error = %chain(&failure), "failed to check the freshness of a kind, trying again");
            }
        }
        sleep(pauses.delay()).await;
    }
}

async fn attempt(shared: &CacheShared, unchecked: &UncheckedWatch) -> Result<bool, WireFailure> {
    let check = shared.state.lock().freshness_check(unchecked);
    let target = match check {
        FreshnessCheck::None => return Ok(true),
        FreshnessCheck::NotListed => return Ok(false),
        FreshnessCheck::Of(target) => target,
    };
    let page = shared.wire.page(&target, Since::Now, None, Some(1)).await?;
    let version = Page::parse(&page)?.version()?;
    let deadline = Instant::now() + MOVES_ON_WITHIN;
    loop {
        if shared.state.lock().check_by_version(unchecked, version) {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            break;
        }
        sleep(LOOKED_AT_EVERY).await;
    }
    let contents = list(shared, &target).await?;
    Ok(shared.state.lock().check_by_contents(unchecked, &contents))
}

async fn list(shared: &CacheShared, target: &WatchTarget) -> Result<Contents, WireFailure> {
    let limit = Some(shared.options.page_objects_max);
    let mut contents = Contents::new();
    let mut following: Option<String> = None;
    loop {
        let _permit = shared.pages.acquire().await;
        let next = following.as_deref();
        let text = shared.wire.page(target, Since::Now, next, limit).await?;
        let page = Page::parse(&text)?;
        for item in page.items.as_deref().unwrap_or_default() {
            let (key, seen) = read(item)?;
            contents.insert(key, seen);
        }
        following = page.next();
        if following.is_none() {
            return Ok(contents);
        }
    }
}

fn read(item: &ObjectFields<'_>) -> Result<(ObjectKey, (Uid, ResourceVersion)), WireFailure> {
    let object = ObjectIdentity::of(item).map_err(WireFailure::Malformed)?;
    let key = ObjectKey::new(&object.namespace, &object.name);
    Ok((key, (object.uid, object.version)))
}
