//! The code of a component: linked while the component is called, and let go while it is idle.
//!
//! Code is mapped from a file, so that a component that was let go costs a descriptor, and the next call some
//! milliseconds. A host of a thousand plugins has those in memory that have something to do.

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
    /// It is in memory alone, and stays there.
    InMemory(Arc<dyn Adapter>),
    /// It can be had from its file again.
    InFile(InFile),
}

/// Code that is linked as long as it is called.
pub(super) struct InFile {
    file: CodeFile,
    contract: String,
    linked: Mutex<Linked>,
}

struct Linked {
    /// None while it is let go.
    adapter: Option<Arc<dyn Adapter>>,
    /// The time at which it was linked or last called.
    used_at: Instant,
    /// True after the first call.
    called: bool,
}

impl Code {
    /// Keeps a component that was linked for its description, until it is called or others are about to be.
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

    /// The component for a call; mapped and linked again if it was let go.
    pub(super) fn adapter(&self, engine: &Engine) -> Result<Arc<dyn Adapter>, Error> {
        match self {
            Self::InMemory(adapter) => Ok(Arc::clone(adapter)),
            Self::InFile(code) => code.adapter(engine),
        }
    }

    /// Lets the code go if it was not used for so long; calls that run keep it until they end.
    ///
    /// Says whether it was linked until now.
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
        let mut linked = self.linked.lock();
        (linked.used_at, linked.called) = (Instant::now(), true);
        if let Some(adapter) = &linked.adapter {
            return Ok(Arc::clone(adapter));
        }
        let component = self.file.map(engine);
        let component = component.map_err(|source| Error::MapAgain { source })?;
        let adapter = convert::adapter(&self.contract, &component)?;
        linked.adapter = Some(Arc::clone(&adapter));
        Ok(adapter)
    }
}
