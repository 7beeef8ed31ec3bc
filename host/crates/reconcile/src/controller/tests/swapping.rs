//! A controller with real passes, while the plugin is swapped.

use super::*;
use crate::{
    Reconciler, Revision,
    tests::{World, parent, revision_of, saying},
};

/// Runs the passes of a reconciler and keeps a record of them.
struct Watched {
    reconciler: Arc<Reconciler>,
    running: Mutex<Vec<ObjectId>>,
    /// The namespace of each pass's parent, and the revision that was active at its beginning.
    began: Mutex<Vec<(String, String)>>,
}

impl Watched {
    fn new(world: &World, revision: Revision) -> Arc<Self> {
        Arc::new(Self {
            reconciler: world.reconciler("web", revision),
            running: Mutex::default(),
            began: Mutex::default(),
        })
    }

    fn revision(&self) -> String {
        self.reconciler.revision().plugin.revision().to_string()
    }

    /// Returns the namespaces of the passes that began with the active revision, in their order.
    fn began_anew(&self) -> Vec<String> {
        let now = self.revision();
        let began = self.began.lock();
        began
            .iter()
            .filter(|(_, revision)| *revision == now)
            .map(|(namespace, _)| namespace.clone())
            .collect()
    }
}

impl Work for Watched {
    fn resync(&self) {
        self.reconciler.resync();
    }

    async fn triggers(&self) -> Vec<Triggered> {
        Work::triggers(&*self.reconciler).await
    }

    async fn pass(&self, parent: ObjectId, attempt: Attempt) -> Next {
        {
            let mut running = self.running.lock();
            assert!(
                !running.contains(&parent),
                "{parent} should have one pass at a time"
            );
            running.push(parent.clone());
        }
        let namespace = parent.namespace.as_deref().unwrap_or_default().to_owned();
        self.began.lock().push((namespace, self.revision()));
        let next = self.reconciler.pass(&parent, attempt).await;
        self.running.lock().retain(|other| *other != parent);
        next
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let poll = async {
        while !holds() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, poll).await.expect(what);
}

/// Waits until no pass runs and none has begun for 100 ms.
async fn until_quiet(watched: &Watched) {
    let quiet = async {
        loop {
            let began = watched.began.lock().len();
            sleep(Duration::from_millis(100)).await;
            if watched.running.lock().is_empty() && watched.began.lock().len() == began {
                return;
            }
        }
    };
    timeout(PATIENCE, quiet).await.expect("no pass should run");
}

/// Runs a controller beside the test.
async fn controlled<F: Future<Output = ()>>(watched: &Arc<Watched>, permits: usize, test: F) {
    let stop = CancellationToken::new();
    let running = run(
        Arc::clone(watched),
        bounds(permits),
        telemetry(),
        stop.clone(),
    );
    let test = async {
        test.await;
        stop.cancel();
    };
    // Each wait in a test has a separate timeout; this one also covers the end of the running passes.
    let both = async { tokio::join!(running, test) };
    let (ended, ()) = timeout(PATIENCE * 6, both)
        .await
        .expect("should end in time");
    ended.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_ends_on_the_revision_that_it_began_with_and_the_next_is_on_the_new_one() {
    let world = World::start().await;
    let namespaces = ["a", "b", "c"];
    for namespace in namespaces {
        world.put_parent(namespace, 1);
    }
    let watched = Watched::new(&world, revision_of(saying("old")));
    let all_say = |text: &str| {
        let says = |namespace: &&str| world.child_says(namespace).as_deref() == Some(text);
        namespaces.iter().all(says)
    };
    let writes_to = |place: &str| {
        let line = format!("PATCH configmaps {place}");
        world
            .server
            .writes()
            .iter()
            .filter(|write| **write == line)
            .count()
    };
    controlled(&watched, 4, async {
        until("the old revision should be active", || all_say("old")).await;
        until_quiet(&watched).await;
        let hold = world.server.hold_writes();
        world.server.delete("configmaps", "a", "child");
        until("a pass on the old revision should run", || {
            watched.running.lock().contains(&parent("a"))
        })
        .await;
        watched.reconciler.swap(revision_of(saying("new")), None);
        // Arrives during the swap.
        world.put_parent("b", 2);
        until("other passes should run on the new revision", || {
            watched.began_anew().len() >= 2
        })
        .await;
        assert!(!watched.began_anew().contains(&"a".to_owned()));
        drop(hold);
        until("the new revision should be active", || all_say("new")).await;
        until("every parent should have its first pass", || {
            watched.reconciler.analysis().pending() == 0
        })
        .await;
    })
    .await;
    // The first pass of `b` does not count if it is for the edit.
    let well = watched.reconciler.analysis().well();
    assert!((2..=3).contains(&well), "{well}");
    assert_eq!(
        writes_to("a/child"),
        3,
        "the old revision should create it twice, the new one update it"
    );
    assert_eq!(writes_to("c/child"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_parent_has_exactly_one_pass_after_a_swap_the_longest_waiting_first() {
    let world = World::start().await;
    for namespace in ["a", "b", "c"] {
        world.put_parent(namespace, 1);
    }
    let watched = Watched::new(&world, revision_of(saying("same")));
    let synced = || {
        ["a", "b", "c"]
            .iter()
            .all(|namespace| world.synced(namespace) == "Applied")
    };
    controlled(&watched, 1, async {
        until("all parents should be applied", synced).await;
        let idle =
            || watched.reconciler.analysis().pending() == 0 && watched.running.lock().is_empty();
        until_quiet(&watched).await;
        for namespace in ["c", "a", "b"] {
            let parent = parent(namespace);
            Box::pin(watched.reconciler.pass(&parent, Attempt::default())).await;
        }
        let writes = world.server.writes();
        // Another component with the same children.
        watched
            .reconciler
            .swap(revision_of(saying("same").with_pages(3)), None);
        until("every parent should have its first pass", idle).await;
        assert_eq!(world.server.writes(), writes);
        // An unneeded pass would come before this one.
        world.put_parent("a", 2);
        until("the edit should have a pass", || {
            watched.began_anew().len() > 3
        })
        .await;
        assert_eq!(watched.began_anew()[..4], ["c", "a", "b", "a"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_passes_of_a_revision_that_breaks_down_are_counted() {
    let world = World::start().await;
    for namespace in ["a", "b"] {
        world.put_parent(namespace, 1);
    }
    let watched = Watched::new(&world, revision_of(saying("old")));
    controlled(&watched, 4, async {
        until("the old revision should be active", || {
            ["a", "b"]
                .iter()
                .all(|namespace| world.synced(namespace) == "Applied")
        })
        .await;
        watched
            .reconciler
            .swap(revision_of(saying("new").doing("(unreachable)", &[])), None);
        until("every parent should have its first pass", || {
            watched.reconciler.analysis().pending() == 0
        })
        .await;
        let analysis = watched.reconciler.analysis();
        assert_eq!((analysis.well(), analysis.faulted()), (0, 2));
        let fault = analysis.first_fault().unwrap();
        assert_eq!(fault.reason, "GuestTrapped");
        watched.reconciler.swap(revision_of(saying("old")), None);
        until("the old revision should be active again", || {
            ["a", "b"]
                .iter()
                .all(|namespace| world.synced(namespace) == "Applied")
        })
        .await;
        assert_eq!(watched.reconciler.analysis().faulted(), 0);
    })
    .await;
}
