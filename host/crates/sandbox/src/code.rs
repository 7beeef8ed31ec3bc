//! A component's code: linked while the component is called, and unmapped while it is idle.
//!
//! Code is mapped from a file. An unmapped component costs one descriptor, and the next call takes some
//! milliseconds more. So a host with a thousand plugins keeps only busy plugins' code in memory.

use std::{
    fs::File,
    os::fd::AsRawFd,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use wasmtime::component::Component;

use crate::{
    Error,
    convert::{self, Adapter},
};

/// The number of components, counted from the last one loaded, that stay in memory until their first call.
///
/// A host that has just started may load a thousand plugins and calls few of them. A plugin usually
/// gets its first call right after it was loaded, and few are loaded at the same time.
const UNCALLED_MAX: usize = 8;

/// The file from which compiled code can be mapped again.
#[derive(Clone)]
pub(super) enum CodeSource {
    /// Memory only.
    Memory(Component),
    /// A file whose bytes were compared with their digest. It is held open, so that a later mapping has the same bytes
    /// even if the directory has changed.
    File(Arc<File>),
}

impl CodeSource {
    /// Maps the code.
    #[expect(
        unsafe_code,
        reason = "compiled code is trusted by its nature: the file is in a directory that only we can write to, and its bytes were compared with the digest that we stored"
    )]
    pub(super) fn map(&self, engine: &wasmtime::Engine) -> wasmtime::Result<Component> {
        let file = match self {
            Self::Memory(component) => return Ok(component.clone()),
            Self::File(file) => file,
        };
        // Opened by descriptor: the name may belong to another file by now.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // SAFETY: an engine of a host made the file from a component, and this engine refuses code of an engine that
        // differs. The cache put it into a directory that only this user can write to. It is read-only, and it is
        // replaced as a whole, never changed in place.
        unsafe { Component::deserialize_file(engine, path) }
    }
}

/// One component's code.
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
    /// Returns the adapter for a call; maps and links the code again if it was unmapped.
    pub(super) fn adapter(&self, engine: &wasmtime::Engine) -> Result<Arc<dyn Adapter>, Error> {
        // Held while the code is mapped, so that concurrent calls to one component make one mapping and not several.
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
    fn unmap(&self, idle: Duration) -> bool {
        self.unmap_if(|linked| linked.used_at.elapsed() >= idle)
    }

    /// Unmaps the code if it has not been called yet.
    fn unmap_uncalled(&self) {
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

/// All code in an engine that may be unmapped while it is idle.
#[derive(Default)]
pub(super) struct Codes {
    codes: Mutex<Vec<Weak<Code>>>,
}

impl Codes {
    /// Adds a component that was linked for its description: it stays linked until it is idle, or until enough later
    /// components were loaded.
    pub(super) fn add(
        &self,
        source: CodeSource,
        contract: &str,
        adapter: Arc<dyn Adapter>,
    ) -> Arc<Code> {
        // Code that is in no file could not be mapped again.
        let may_be_unmapped = matches!(source, CodeSource::File(_));
        let code = Arc::new(Code {
            source,
            contract: contract.to_owned(),
            linked: Mutex::new(Linked {
                adapter: Some(adapter),
                used_at: Instant::now(),
                called: false,
            }),
        });
        if may_be_unmapped {
            self.register(&code);
        }
        code
    }

    /// Registers code. Among code that waits for its first call, only the last few stay.
    fn register(&self, code: &Arc<Code>) {
        let mut codes = self.codes.lock();
        codes.push(Arc::downgrade(code));
        // One at a time is enough, because each load adds one.
        let earlier = codes
            .len()
            .checked_sub(UNCALLED_MAX + 1)
            .and_then(|at| codes.get(at)?.upgrade());
        // Released first: unmapping code takes long, and every load and every sweep needs this lock.
        drop(codes);
        if let Some(earlier) = earlier {
            earlier.unmap_uncalled();
        }
    }

    /// Unmaps code that was not used for this long, and returns how many components that were.
    pub(super) fn unmap_idle(&self, idle: Duration) -> usize {
        // Unmapping takes long, so it happens outside this lock.
        let codes: Vec<_> = {
            let mut codes = self.codes.lock();
            codes.retain(|code| code.strong_count() > 0);
            codes.iter().filter_map(Weak::upgrade).collect()
        };
        codes.iter().filter(|code| code.unmap(idle)).count()
    }
}
