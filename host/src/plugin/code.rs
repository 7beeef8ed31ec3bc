//! The code of a component: linked while somebody calls it, and let go while nobody does.
//!
//! Code is mapped from a file, so that a component that was let go costs a descriptor, and the next call some
//! milliseconds. A host of a thousand plugins has those in memory that have something to do.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::plugin::{
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
    used_at: Instant,
}

impl Code {
    /// Links a component.
    pub(super) fn link(engine: &Engine, artifact: &Artifact) -> Result<Arc<Self>, Error> {
        let contract = artifact.contract();
        let adapter: Arc<dyn Adapter> = convert::adapter(contract, &artifact.component)?.into();
        let Some(file) = artifact.file.clone() else {
            return Ok(Arc::new(Self::InMemory(adapter)));
        };
        let code = Arc::new(Self::InFile(InFile {
            file,
            contract: contract.to_owned(),
            linked: Mutex::new(Linked {
                adapter: Some(adapter),
                used_at: Instant::now(),
            }),
        }));
        engine.look_after(&code);
        Ok(code)
    }

    /// The component as it can be called; mapped and linked again if it was let go.
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
        match self {
            Self::InMemory(_) => false,
            Self::InFile(code) => code.let_go(idle),
        }
    }
}

impl InFile {
    fn adapter(&self, engine: &Engine) -> Result<Arc<dyn Adapter>, Error> {
        let mut linked = self.linked.lock();
        linked.used_at = Instant::now();
        if let Some(adapter) = &linked.adapter {
            return Ok(Arc::clone(adapter));
        }
        let component = self.file.map(engine);
        let component = component.map_err(|source| Error::MapAgain { source })?;
        let adapter: Arc<dyn Adapter> = convert::adapter(&self.contract, &component)?.into();
        linked.adapter = Some(Arc::clone(&adapter));
        Ok(adapter)
    }

    fn let_go(&self, idle: Duration) -> bool {
        // Whoever holds it uses it.
        let Some(mut linked) = self.linked.try_lock() else {
            return false;
        };
        linked.used_at.elapsed() >= idle && linked.adapter.take().is_some()
    }
}
