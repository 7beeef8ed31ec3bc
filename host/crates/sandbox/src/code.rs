//! The code of a component: linked while the component is called, and let go while it is idle.
//!
//! Code is mapped from a file. A component that was let go costs one descriptor, and its next call takes some
//! milliseconds more. So a host of a thousand plugins keeps only the code of its busy plugins in memory.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{
    Engine, Error,
    artifact::{Artifact, CodeFile},
    convert::{self, Adapter},
};

/// The code of one component.
pub(super) enum Code {
    /// In memory only; never let go.
    InMemory(Arc<dyn Adapter>),
    /// Backed by a file, from which it can be mapped again.
    InFile(InFile),
}

/// Code that is linked while it is in use.
pub(super) struct InFile {
    file: CodeFile,
    contract: String,
    linked: Mutex<Linked>,
}

struct Linked {
    /// None after it was let go, until the next call.
    adapter: Option<Arc<dyn Adapter>>,
    /// The time at which it was linked or last called.
    used_at: Instant,
    /// True after the first call.
    called: bool,
}

impl Code {
    /// Registers a component that was linked for its description: it stays linked until it is idle, or until enough later
    /// components were loaded.
    pub(super) fn of(engine: &Engine, artifact: &Artifact, adapter: Arc<dyn Adapter>) -> Arc<Self> {
        let Some(file) = artifact.file.clone() else {
            return Arc::new(Self::InMemory(adapter));
        };
        let code = Arc::new(Self::InFile(InFile {
            file,
            contract: artifact.contract().to_owned(),
            linked: Mutex::new(Linked {
                adapter: Some(adapter),
                used_at: Instant::now(),
                called: false,
            }),
        }));
        engine.look_after(&code);
        code
    }

    /// Returns the adapter for a call; maps and links the code again if it was let go.
    pub(super) fn adapter(&self, engine: &Engine) -> Result<Arc<dyn Adapter>, Error> {
        match self {
            Self::InMemory(adapter) => Ok(Arc::clone(adapter)),
            Self::InFile(code) => code.adapter(engine),
        }
    }

    /// Lets the code go if it was not used for this long, and returns true if it was linked until now.
    ///
    /// Running calls keep it until they end.
    pub(super) fn let_go(&self, idle: Duration) -> bool {
        self.let_go_if(|linked| linked.used_at.elapsed() >= idle)
    }

    /// Lets the code go if it has not been called yet.
    pub(super) fn let_go_uncalled(&self) {
        self.let_go_if(|linked| !linked.called);
    }

    fn let_go_if(&self, may_go: impl Fn(&Linked) -> bool) -> bool {
        let Self::InFile(InFile { linked, .. }) = self else {
            return false;
        };
        // The thread that holds the lock is about to call: the code is not idle.
        let Some(mut linked) = linked.try_lock() else {
            return false;
        };
        may_go(&linked) && linked.adapter.take().is_some()
    }
}

impl InFile {
    fn adapter(&self, engine: &Engine) -> Result<Arc<dyn Adapter>, Error> {
        // Held while the code is mapped: concurrent calls of one component wait for one mapping instead of making several.
        let mut linked = self.linked.lock();
        (linked.used_at, linked.called) = (Instant::now(), true);
        if let Some(adapter) = &linked.adapter {
            return Ok(Arc::clone(adapter));
        }
        let component = self
            .file
            .map(engine)
            .map_err(|source| Error::MapAgain { source })?;
        let adapter = convert::adapter(&self.contract, &component)?;
        linked.adapter = Some(Arc::clone(&adapter));
        Ok(adapter)
    }
}
