//! A confined WASI for plugins: some toolchains always import it.
//!
//! `wasmtime-wasi` without files, sockets, environment and input, and with one argument.
//! Clock, random bytes and output come from the pass, within its limits, and are answered here: the clock
//! stands still, the random bytes follow from the pass's seed, and the output goes into the plugin's log.
//! Every stream is ready. A wait for a later time would never end, so it ends the call.
//! Each call to a socket function ends it too.
//!
//! NB: `wasmtime-wasi` answers some calls in a tokio runtime that it starts at the first one, although nothing waits
//! there. It would panic on a thread that drives a runtime already: guests run on plain and on blocking threads only.
//!
//! Only the interfaces that a component imports are linked, and a call's state is made at the first WASI call: a
//! guest without WASI pays nothing.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use wasmtime::{
    Engine,
    component::{
        Component, HasSelf, Linker, Resource, ResourceTable, ResourceType,
        types::{self, ComponentItem},
    },
};
use wasmtime_wasi::{
    async_trait,
    cli::{WasiCli, WasiCliCtxView},
    filesystem::{WasiFilesystem, WasiFilesystemCtxView},
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
                filesystem::types as files_types,
                io::{poll, streams},
            },
        },
        subscribe,
    },
};

use crate::{
    call::CallFault,
    log::{LogBuffer, LogLevel},
    state::{StoreState, Wasi},
};

/// An interface's functions that answer from the pass's state.
type Pass = HasSelf<StoreState>;
/// An interface's functions that need only the guest's handles.
type Handles = HasSelf<ResourceTable>;

type Link = fn(&mut Linker<StoreState>) -> wasmtime::Result<()>;

/// Lists interfaces, each with the function that links it: name, module, its part of the state, access to that.
macro_rules! interfaces {
    ($($name:literal: $module:ident, $part:ty, $access:ident;)*) => {
        [$(($name, |linker| $module::add_to_linker::<_, $part>(linker, $access))),*]
    };
}

/// The supported interfaces.
const INTERFACES: [(&str, Link); 20] = interfaces! {
    "wasi:cli/environment": environment, Pass, pass;
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
    "wasi:filesystem/types": files_types, WasiFilesystem, files;
    "wasi:io/error": error, Handles, handles;
    "wasi:io/poll": poll, Pass, pass;
    "wasi:io/streams": streams, Handles, handles;
    "wasi:random/insecure": insecure, Pass, pass;
    "wasi:random/insecure-seed": insecure_seed, Pass, pass;
    "wasi:random/random": random, Pass, pass;
};

/// The socket interfaces, each with the resources that it makes. The other interfaces use these.
const SOCKETS: [(&str, &[&str]); 7] = [
    ("wasi:sockets/instance-network", &[]),
    ("wasi:sockets/ip-name-lookup", &["resolve-address-stream"]),
    ("wasi:sockets/network", &["network"]),
    ("wasi:sockets/tcp", &["tcp-socket"]),
    ("wasi:sockets/tcp-create-socket", &[]),
    (
        "wasi:sockets/udp",
        &[
            "udp-socket",
            "incoming-datagram-stream",
            "outgoing-datagram-stream",
        ],
    ),
    ("wasi:sockets/udp-create-socket", &[]),
];

/// The supported versions' prefix: later versions in this line only add to the interfaces.
const VERSIONS: &str = "0.2.";

/// The answer to `check-write`: bytes that a guest may write at a time. Longer writes are taken too, and the log bounds
/// them; but the host allocates as many bytes if a guest writes zeroes.
const WRITE_BYTES_PERMITTED: usize = 64 * 1024;

const NANOS_PER_MILLI: u32 = 1_000_000;

/// The guest's only argument, where a program has its name.
const PROGRAM: &str = "plugin";

/// Returns true if an import is supported.
pub(super) fn is_known(import: &str) -> bool {
    interface(import).is_some() || sockets(import).is_some()
}

fn interface(import: &str) -> Option<(&'static str, Link)> {
    let name = supported_name(import)?;
    INTERFACES.into_iter().find(|(known, _)| *known == name)
}

fn sockets(import: &str) -> Option<(&'static str, &'static [&'static str])> {
    let name = supported_name(import)?;
    SOCKETS.into_iter().find(|(known, _)| *known == name)
}

/// Returns an interface's name without the version, if the version is supported.
fn supported_name(import: &str) -> Option<&str> {
    let (name, version) = import.split_once('@')?;
    // Versions such as 0.2.0-rc-2023-11-10 are older than the line.
    let supported = version.starts_with(VERSIONS) && !version.contains('-');
    supported.then_some(name)
}

/// Adds a component's WASI imports to a linker.
pub(super) fn link(linker: &mut Linker<StoreState>, component: &Component) -> wasmtime::Result<()> {
    let engine = linker.engine().clone();
    let world = component.component_type();
    // A component may import an interface in several versions, which the linker serves with one.
    let interfaces: BTreeMap<_, _> = world
        .imports(&engine)
        .filter_map(|(import, _)| interface(import))
        .collect();
    interfaces.into_values().try_for_each(|link| link(linker))?;
    link_sockets(linker, &world, &engine)
}

/// Adds the socket functions, whatever their types are: each ends the call.
///
/// This runs outside the call limits, for every import that a component names: so it compares names with the table
/// alone, and makes no text before a call.
fn link_sockets(
    linker: &mut Linker<StoreState>,
    world: &types::Component,
    engine: &Engine,
) -> wasmtime::Result<()> {
    for (import, item) in world.imports(engine) {
        let ComponentItem::ComponentInstance(members) = item.ty else {
            continue;
        };
        let Some((interface, resources)) = sockets(import) else {
            continue;
        };
        let mut instance = linker.instance(import)?;
        for (name, item) in members.exports(engine) {
            match item.ty {
                ComponentItem::ComponentFunc(_) => {
                    let member: Box<str> = name.into();
                    instance.func_new(name, move |mut store, _, _, _| {
                        let function = format!("{interface}#{member}");
                        Err(store.data_mut().fault(CallFault::NoNetwork { function }))
                    })?;
                }
                ComponentItem::Resource(_) if resources.contains(&name) => {
                    instance.resource(name, ResourceType::host::<Socket>(), |_, _| Ok(()))?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// A socket resource. No guest gets one.
struct Socket;

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

/// A guest's standard stream. Several handles may be open to one.
struct LogStream {
    /// The level of its lines: error for standard error, which has the message of a panic.
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
        Ok(WRITE_BYTES_PERMITTED)
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

impl environment::Host for StoreState {
    fn get_environment(&mut self) -> wasmtime::Result<Vec<(String, String)>> {
        Ok(Vec::new())
    }

    fn get_arguments(&mut self) -> wasmtime::Result<Vec<String>> {
        // klog stops without any argument.
        Ok(vec![PROGRAM.to_owned()])
    }

    fn initial_cwd(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(None)
    }
}

/// A wait that is over. One that is not is never polled: it is in the wait list.
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

    fn subscribe_instant(&mut self, when: u64) -> wasmtime::Result<Resource<DynPollable>> {
        let now = monotonic_clock::Host::now(self)?;
        monotonic_clock::Host::subscribe_duration(self, when.saturating_sub(now))
    }

    fn subscribe_duration(&mut self, duration: u64) -> wasmtime::Result<Resource<DynPollable>> {
        let wasi = wasi(self);
        let wait = wasi.handles.push(WaitOver)?;
        let pollable = subscribe(&mut wasi.handles, wait)?;
        if duration > 0 {
            // The clock stands still, so the time never comes.
            wasi.waits.insert(pollable.rep());
        }
        Ok(pollable)
    }
}

impl poll::Host for StoreState {
    fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> wasmtime::Result<Vec<u32>> {
        let Wasi { handles, waits, .. } = wasi(self);
        let is_empty = pollables.is_empty();
        let (places, over): (Vec<u32>, Vec<_>) = (0..)
            .zip(pollables)
            .filter(|(_, pollable)| !waits.contains(&pollable.rep()))
            .unzip();
        // All of them wait for ever. `wasmtime-wasi` refuses an empty list.
        if over.is_empty() && !is_empty {
            return Err(self.fault(CallFault::Waited));
        }
        let ready = poll::Host::poll(handles, over)?.into_iter();
        // The answer's places are those in the shorter list.
        let place = |at: u32| places.get(usize::try_from(at).ok()?).copied();
        Ok(ready.filter_map(place).collect())
    }
}

impl poll::HostPollable for StoreState {
    fn ready(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<bool> {
        let Wasi { handles, waits, .. } = wasi(self);
        if waits.contains(&pollable.rep()) {
            return Ok(false);
        }
        poll::HostPollable::ready(handles, pollable)
    }

    fn block(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        let Wasi { handles, waits, .. } = wasi(self);
        if waits.contains(&pollable.rep()) {
            return Err(self.fault(CallFault::Waited));
        }
        poll::HostPollable::block(handles, pollable)
    }

    fn drop(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        let Wasi { handles, waits, .. } = wasi(self);
        // The table may give the number to another handle.
        waits.remove(&pollable.rep());
        poll::HostPollable::drop(handles, pollable)
    }
}

impl random::Host for StoreState {
    fn get_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        // A longer request is beyond the limit anyway.
        self.random(u32::try_from(len).unwrap_or(u32::MAX))
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        Ok(self
            .random(8)?
            .into_iter()
            .fold(0, |number, byte| number << 8 | u64::from(byte)))
    }
}

impl insecure::Host for StoreState {
    fn get_insecure_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        // From the same seed, so that the pass can be repeated.
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
