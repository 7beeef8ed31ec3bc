//! An empty WASI for plugins: some toolchains always import it.
//!
//! `wasmtime-wasi` without files, sockets, environment, arguments and input.
//! The clock, the random bytes and the output are those of the pass, with its limits, and are answered here: the clock
//! stands still, the random bytes follow from the seed of the pass, and the output goes into the log of the plugin.
//! Every pollable is ready, so that no call waits.
//!
//! NB: `wasmtime-wasi` answers some calls in a runtime of tokio that it starts at the first of them, although nothing waits
//! there. It would panic on a thread that drives a runtime already: guests run on plain and on blocking threads only.
//!
//! Only the interfaces that a component imports are linked, and the state of a call is made by its first use of WASI: a
//! guest without WASI pays for none of it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use wasmtime::component::{Component, HasSelf, Linker, Resource, ResourceTable};
use wasmtime_wasi::{
    async_trait,
    cli::{WasiCli, WasiCliCtx, WasiCliCtxView},
    filesystem::{WasiFilesystem, WasiFilesystemCtx, WasiFilesystemCtxView},
    p2::{
        DynOutputStream, DynPollable, OutputStream, Pollable, StreamResult,
        bindings::{
            cli::{
                environment, exit, stderr, stdin, stdout, terminal_input, terminal_output,
                terminal_stderr, terminal_stdin, terminal_stdout,
            },
            clocks::{
                monotonic_clock,
                wall_clock::{self, Datetime},
            },
            filesystem::preopens,
            io::error,
            random::{insecure, insecure_seed, random},
            sync::{
                filesystem::types,
                io::{poll, streams},
            },
        },
        subscribe,
    },
};

use crate::{
    log::{LogBuffer, LogLevel},
    state::StoreState,
};

/// The functions of an interface that answer from the state of the pass.
type Pass = HasSelf<StoreState>;
/// The functions of an interface that need the handles of the guest only.
type Handles = HasSelf<ResourceTable>;

type Link = fn(&mut Linker<StoreState>) -> wasmtime::Result<()>;

/// Makes a list of interfaces, each with the function that links it: name, module, its part of the state, access to that.
macro_rules! interfaces {
    ($($name:literal: $module:ident, $part:ty, $access:ident;)*) => {
        [$(($name, |linker| $module::add_to_linker::<_, $part>(linker, $access))),*]
    };
}

/// The supported interfaces.
const INTERFACES: [(&str, Link); 20] = interfaces! {
    "wasi:cli/environment": environment, WasiCli, cli;
    "wasi:cli/exit": exit, WasiCli, cli;
    "wasi:cli/stdin": stdin, WasiCli, cli;
    "wasi:cli/stdout": stdout, Pass, pass;
    "wasi:cli/stderr": stderr, Pass, pass;
    "wasi:cli/terminal-input": terminal_input, WasiCli, cli;
    "wasi:cli/terminal-output": terminal_output, WasiCli, cli;
    "wasi:cli/terminal-stdin": terminal_stdin, WasiCli, cli;
    "wasi:cli/terminal-stdout": terminal_stdout, WasiCli, cli;
    "wasi:cli/terminal-stderr": terminal_stderr, WasiCli, cli;
    "wasi:clocks/monotonic-clock": monotonic_clock, Pass, pass;
    "wasi:clocks/wall-clock": wall_clock, Pass, pass;
    "wasi:filesystem/preopens": preopens, WasiFilesystem, files;
    "wasi:filesystem/types": types, WasiFilesystem, files;
    "wasi:io/error": error, Handles, handles;
    "wasi:io/poll": poll, Handles, handles;
    "wasi:io/streams": streams, Handles, handles;
    "wasi:random/insecure": insecure, Pass, pass;
    "wasi:random/insecure-seed": insecure_seed, Pass, pass;
    "wasi:random/random": random, Pass, pass;
};

/// The prefix of the supported versions: later versions of this line only add to the interfaces.
const VERSIONS: &str = "0.2.";

/// Handles of streams and the like that a guest may hold at a time; a pollable of a clock counts twice. Chosen, not
/// measured: far more than the standard streams need, and each costs the host about 200 bytes.
pub(super) const HANDLES_MAX: usize = 1000;

/// The answer to `check-write`: bytes that a guest may write at a time. Longer writes are taken too, and the log bounds
/// them; but the host allocates as many bytes if a guest writes zeroes.
const WRITE_BYTES_TOLD: usize = 64 * 1024;

const NANOS_PER_MILLI: u32 = 1_000_000;

/// The state of a guest that uses WASI.
pub(super) struct Wasi {
    cli: WasiCliCtx,
    files: WasiFilesystemCtx,
    handles: ResourceTable,
}

impl Default for Wasi {
    fn default() -> Self {
        let mut handles = ResourceTable::new();
        handles.set_max_capacity(HANDLES_MAX);
        Self {
            cli: WasiCliCtx::default(),
            files: WasiFilesystemCtx::default(),
            handles,
        }
    }
}

/// Returns true if an import is supported.
pub(super) fn is_known(import: &str) -> bool {
    interface(import).is_some()
}

fn interface(import: &str) -> Option<(&'static str, Link)> {
    let (name, version) = import.split_once('@')?;
    // Versions such as 0.2.0-rc-2023-11-10 are older than the line.
    let supported = version.starts_with(VERSIONS) && !version.contains('-');
    let known = INTERFACES.into_iter().find(|(known, _)| *known == name);
    known.filter(|_| supported)
}

/// Adds the WASI imports of a component to a linker.
pub(super) fn link(linker: &mut Linker<StoreState>, component: &Component) -> wasmtime::Result<()> {
    let engine = linker.engine().clone();
    let world = component.component_type();
    // A component may import several versions of an interface, which the linker serves with one.
    let interfaces: BTreeMap<_, _> = world
        .imports(&engine)
        .filter_map(|(import, _)| interface(import))
        .collect();
    interfaces.into_values().try_for_each(|link| link(linker))
}

fn pass(state: &mut StoreState) -> &mut StoreState {
    state
}

fn wasi(state: &mut StoreState) -> &mut Wasi {
    state.wasi.get_or_insert_default()
}

fn cli(state: &mut StoreState) -> WasiCliCtxView<'_> {
    let Wasi { cli, handles, .. } = wasi(state);
    WasiCliCtxView {
        ctx: cli,
        table: handles,
    }
}

fn files(state: &mut StoreState) -> WasiFilesystemCtxView<'_> {
    let Wasi { files, handles, .. } = wasi(state);
    WasiFilesystemCtxView {
        ctx: files,
        table: handles,
    }
}

fn handles(state: &mut StoreState) -> &mut ResourceTable {
    &mut wasi(state).handles
}

/// A standard stream of the guest. Several handles may be open to one.
struct LogStream {
    /// The level of its lines. The error stream has the message of a panic, which must reach the condition even when the
    /// log is full.
    level: LogLevel,
    log: Arc<Mutex<LogBuffer>>,
}

impl LogStream {
    fn open(
        state: &mut StoreState,
        level: LogLevel,
    ) -> wasmtime::Result<Resource<DynOutputStream>> {
        let log = Arc::clone(&state.log);
        let stream: DynOutputStream = Box::new(Self { level, log });
        Ok(handles(state).push(stream)?)
    }
}

#[async_trait]
impl Pollable for LogStream {
    async fn ready(&mut self) {}
}

impl OutputStream for LogStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.log.lock().write(self.level, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES_TOLD)
    }
}

impl stdout::Host for StoreState {
    fn get_stdout(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        LogStream::open(self, LogLevel::Info)
    }
}

impl stderr::Host for StoreState {
    fn get_stderr(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        LogStream::open(self, LogLevel::Error)
    }
}

impl wall_clock::Host for StoreState {
    fn now(&mut self) -> wasmtime::Result<Datetime> {
        let now = Duration::from_millis(self.now());
        Ok(Datetime {
            seconds: now.as_secs(),
            nanoseconds: now.subsec_nanos(),
        })
    }

    fn resolution(&mut self) -> wasmtime::Result<Datetime> {
        Ok(Datetime {
            seconds: 0,
            nanoseconds: NANOS_PER_MILLI,
        })
    }
}

/// The end of a wait. The clock stands still, so that no wait would ever end: it is over at once.
struct WaitOver;

#[async_trait]
impl Pollable for WaitOver {
    async fn ready(&mut self) {}
}

impl monotonic_clock::Host for StoreState {
    fn now(&mut self) -> wasmtime::Result<u64> {
        Ok(self.now().saturating_mul(NANOS_PER_MILLI.into()))
    }

    fn resolution(&mut self) -> wasmtime::Result<u64> {
        Ok(NANOS_PER_MILLI.into())
    }

    fn subscribe_instant(&mut self, _: u64) -> wasmtime::Result<Resource<DynPollable>> {
        let handles = handles(self);
        let wait = handles.push(WaitOver)?;
        subscribe(handles, wait)
    }

    fn subscribe_duration(&mut self, _: u64) -> wasmtime::Result<Resource<DynPollable>> {
        monotonic_clock::Host::subscribe_instant(self, 0)
    }
}

impl random::Host for StoreState {
    fn get_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        self.random(u32::try_from(len).unwrap_or(u32::MAX))
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        let bytes = self.random(8)?.into_iter();
        Ok(bytes.fold(0, |number, byte| number << 8 | u64::from(byte)))
    }
}

impl insecure::Host for StoreState {
    fn get_insecure_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        random::Host::get_random_bytes(self, len)
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        random::Host::get_random_u64(self)
    }
}

impl insecure_seed::Host for StoreState {
    fn insecure_seed(&mut self) -> wasmtime::Result<(u64, u64)> {
        let mut number = || random::Host::get_random_u64(self);
        Ok((number()?, number()?))
    }
}
