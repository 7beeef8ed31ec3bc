//! The code of a component: linked while the component is called, and unmapped while it is idle.
//!
//! Code is mapped from a file. An unmapped component costs one descriptor, and its next call takes some
//! milliseconds more. So a host of a thousand plugins keeps only the code of its busy plugins in memory.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{
    Engine, Error,
    artifact::{Artifact, CodeSource},
    convert::{self, Adapter},
};

/// The code of one component.
pub(super) struct Code {
    source: CodeSource,
    contract: String,
    linked: Mutex<Linked>,
}

struct Linked {
    /// None while it is unmapped.
    adapter: Option<Arc<dyn Adapter>>,
    /// The time at which it was linked or last called.
    used_at: Instant,
    /// True after the first call.
    called: bool,
}

impl Code {
    /// Registers a component that was linked for its description: it stays linked until it is idle, or until enough later
    /// components were loaded. Code that is in memory only is never unmapped.
    pub(super) fn of(engine: &Engine, artifact: &Artifact, adapter: Arc<dyn Adapter>) -> Arc<Self> {
        let code = Arc::new(Self {
            source: artifact.code.source.clone(),
            contract: artifact.contract().to_owned(),
            linked: Mutex::new(Linked {
                adapter: Some(adapter),
                used_at: Instant::now(),
                called: false,
            }),
        });
        if let CodeSource::File(_) = code.source {
            engine.look_after(&code);
        }
        code
    }

    /// Returns the adapter for a call; maps and links the code again if it was unmapped.
    pub(super) fn adapter(&self, engine: &Engine) -> Result<Arc<dyn Adapter>, Error> {
        // Held while the code is mapped: concurrent calls of one component wait for one mapping instead of making several.
        let mut linked = self.linked.lock();
        (linked.used_at, linked.called) = (Instant::now(), true);
        if let Some(adapter) = &linked.adapter {
            return Ok(Arc::clone(adapter));
        }
        let component = self.source.map(engine).map_err(Error::MapAgain)?;
        let adapter = convert::adapter(&self.contract, &component)?;
        linked.adapter = Some(Arc::clone(&adapter));
        Ok(adapter)
    }

    /// Unmaps the code if it was not used for this long, and returns true if it was linked until now.
    ///
    /// Running calls keep it until they end.
    pub(super) fn unmap(&self, idle: Duration) -> bool {
        self.unmap_if(|linked| linked.used_at.elapsed() >= idle)
    }

    /// Unmaps the code if it has not been called yet.
    pub(super) fn unmap_uncalled(&self) {
        self.unmap_if(|linked| !linked.called);
    }

    fn unmap_if(&self, may_go: impl Fn(&Linked) -> bool) -> bool {
        // The thread that holds the lock is about to call: the code is not idle.
        let Some(mut linked) = self.linked.try_lock() else {
            return false;
        };
        may_go(&linked) && linked.adapter.take().is_some()
    }
}
