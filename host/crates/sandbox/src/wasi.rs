//! An empty WASI for plugins: some toolchains always import it.
//!
//! No files, no sockets, no environment, no arguments, no input.
//! Its clock is the fixed clock of the pass, its random bytes follow from the seed of the pass, and its output goes into
//! the log of the plugin, within the limits of the log.
//! Nothing here waits: every pollable is always ready.
//!
//! Only the imports of a component are linked, by their names. A function without a meaning for plugins ends the call with
//! a fault that names it. Components with other interfaces are refused before they are compiled.
//!
//! Written by hand, because `wasmtime-wasi` needs wasmtime's asynchronous support, and a file system that would have to be
//! locked.

mod output;

use wasmtime::{
    StoreContextMut,
    component::{
        Component, ComponentType, Linker, LinkerInstance, Lower, Resource, ResourceType, WasmList,
        types::ComponentItem,
    },
};

pub(super) use self::output::{Output, StandardStream};
use super::{call::CallFault, state::StoreState};

/// The supported interfaces.
const INTERFACES: [&str; 20] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/stderr",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:cli/terminal-stderr",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
];

/// The prefix of the supported versions: later versions of this line only add to the interfaces.
const VERSIONS: &str = "0.2.";

/// The answer to `check-write`: bytes that a guest may write at a time. Not a limit: longer writes are taken too, and the
/// log bounds them.
const WRITE_BYTES_TOLD: u64 = 64 * 1024;

const NANOS_PER_SECOND: u64 = 1_000_000_000;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// The resource types. They have no values, because the handles carry no data.
enum InputStream {}
enum OutputStream {}
enum Pollable {}
enum IoError {}
enum Descriptor {}
enum DirectoryEntryStream {}
enum TerminalInput {}
enum TerminalOutput {}

/// `wasi:io/streams.stream-error`.
#[derive(ComponentType, Lower)]
#[component(variant)]
enum StreamError {
    #[component(name = "last-operation-failed")]
    #[expect(dead_code, reason = "the type has the case, and nothing here fails")]
    LastOperationFailed(Resource<IoError>),
    #[component(name = "closed")]
    Closed,
}

/// `wasi:clocks/wall-clock.datetime`.
#[derive(ComponentType, Lower)]
#[component(record)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

type Context<'a> = StoreContextMut<'a, StoreState>;
type Instance<'a> = LinkerInstance<'a, StoreState>;
type Linked = wasmtime::Result<()>;

/// Returns true if an import is supported.
pub(super) fn is_known(import: &str) -> bool {
    interface(import).is_some()
}

fn interface(import: &str) -> Option<&'static str> {
    let (name, version) = import.split_once('@')?;
    let known = INTERFACES.into_iter().find(|known| *known == name);
    known.filter(|_| version.starts_with(VERSIONS))
}

/// Adds the WASI imports of a component to a linker.
pub(super) fn link(linker: &mut Linker<StoreState>, component: &Component) -> Linked {
    let engine = linker.engine().clone();
    let world = component.component_type();
    for (import, item) in world.imports(&engine) {
        let (Some(interface), ComponentItem::ComponentInstance(items)) =
            (interface(import), item.ty)
        else {
            continue;
        };
        let mut instance = linker.instance(import)?;
        for (name, item) in items.exports(&engine) {
            match item.ty {
                ComponentItem::Resource(_) => resource(&mut instance, name)?,
                ComponentItem::ComponentFunc(_) => function(&mut instance, interface, name)?,
                _ => {}
            }
        }
    }
    Ok(())
}

fn resource(instance: &mut Instance<'_>, name: &str) -> Linked {
    let kind = match name {
        "input-stream" => ResourceType::host::<InputStream>(),
        "output-stream" => ResourceType::host::<OutputStream>(),
        "pollable" => ResourceType::host::<Pollable>(),
        "error" => ResourceType::host::<IoError>(),
        "descriptor" => ResourceType::host::<Descriptor>(),
        "directory-entry-stream" => ResourceType::host::<DirectoryEntryStream>(),
        "terminal-input" => ResourceType::host::<TerminalInput>(),
        "terminal-output" => ResourceType::host::<TerminalOutput>(),
        _ => return Ok(()),
    };
    instance.resource(name, kind, |mut store, _| {
        store.data_mut().drop_handle();
        Ok(())
    })
}

fn function(instance: &mut Instance<'_>, interface: &'static str, name: &str) -> Linked {
    match interface {
        "wasi:io/streams" => stream(instance, interface, name),
        "wasi:io/poll" => poll(instance, interface, name),
        "wasi:clocks/monotonic-clock" | "wasi:clocks/wall-clock" => {
            clock(instance, interface, name)
        }
        _ if interface.starts_with("wasi:random/") => random(instance, interface, name),
        _ => nothing(instance, interface, name),
    }
}

/// Functions whose answer is empty.
fn nothing(instance: &mut Instance<'_>, interface: &'static str, name: &str) -> Linked {
    match name {
        "get-environment" => instance.func_wrap(name, |_: Context<'_>, (): ()| {
            Ok((Vec::<(String, String)>::new(),))
        }),
        "get-arguments" => {
            instance.func_wrap(name, |_: Context<'_>, (): ()| Ok((Vec::<String>::new(),)))
        }
        "initial-cwd" => instance.func_wrap(name, |_: Context<'_>, (): ()| Ok((None::<String>,))),
        "get-directories" => instance.func_wrap(name, |_: Context<'_>, (): ()| {
            Ok((Vec::<(Resource<Descriptor>, String)>::new(),))
        }),
        "get-terminal-stdin" => instance.func_wrap(name, |_: Context<'_>, (): ()| {
            Ok((None::<Resource<TerminalInput>>,))
        }),
        "get-terminal-stdout" | "get-terminal-stderr" => instance
            .func_wrap(name, |_: Context<'_>, (): ()| {
                Ok((None::<Resource<TerminalOutput>>,))
            }),
        "get-stdin" => instance.func_wrap(name, |mut store: Context<'_>, (): ()| {
            store.data_mut().count_handle()?;
            Ok((Resource::<InputStream>::new_own(0),))
        }),
        "get-stdout" => instance.func_wrap(name, |store: Context<'_>, (): ()| {
            open(store, StandardStream::Output)
        }),
        "get-stderr" => instance.func_wrap(name, |store: Context<'_>, (): ()| {
            open(store, StandardStream::Error)
        }),
        _ => refused(instance, interface, name),
    }
}

fn open(
    mut store: Context<'_>,
    stream: StandardStream,
) -> wasmtime::Result<(Resource<OutputStream>,)> {
    store.data_mut().count_handle()?;
    Ok((Resource::new_own(stream.number()),))
}

fn stream(instance: &mut Instance<'_>, interface: &'static str, name: &str) -> Linked {
    match name {
        "[method]input-stream.read" | "[method]input-stream.blocking-read" => instance.func_wrap(
            name,
            |_: Context<'_>, (_, _): (Resource<InputStream>, u64)| {
                Ok((Err::<Vec<u8>, _>(StreamError::Closed),))
            },
        ),
        "[method]input-stream.skip" | "[method]input-stream.blocking-skip" => instance.func_wrap(
            name,
            |_: Context<'_>, (_, _): (Resource<InputStream>, u64)| {
                Ok((Err::<u64, _>(StreamError::Closed),))
            },
        ),
        "[method]input-stream.subscribe" => instance.func_wrap(
            name,
            |store: Context<'_>, (_,): (Resource<InputStream>,)| pollable(store),
        ),
        "[method]output-stream.check-write" => {
            instance.func_wrap(name, |_: Context<'_>, (_,): (Resource<OutputStream>,)| {
                Ok((Ok::<_, StreamError>(WRITE_BYTES_TOLD),))
            })
        }
        "[method]output-stream.write" | "[method]output-stream.blocking-write-and-flush" => {
            instance.func_wrap(
                name,
                |mut store: Context<'_>,
                 (stream, bytes): (Resource<OutputStream>, WasmList<u8>)| {
                    write(&mut store, &stream, &bytes);
                    Ok((Ok::<(), StreamError>(()),))
                },
            )
        }
        "[method]output-stream.flush" | "[method]output-stream.blocking-flush" => instance
            .func_wrap(name, |_: Context<'_>, (_,): (Resource<OutputStream>,)| {
                Ok((Ok::<(), StreamError>(()),))
            }),
        "[method]output-stream.subscribe" => instance.func_wrap(
            name,
            |store: Context<'_>, (_,): (Resource<OutputStream>,)| pollable(store),
        ),
        _ => refused(instance, interface, name),
    }
}

fn write(store: &mut Context<'_>, stream: &Resource<OutputStream>, bytes: &WasmList<u8>) {
    let stream = StandardStream::of(stream.rep());
    let len = bytes.as_le_slice(&*store).len();
    // Copied only when the pass still has room for it: a flood costs the host no memory.
    if store.data().log_takes(stream.level()) {
        let bytes = bytes.as_le_slice(&*store).to_owned();
        store.data_mut().write(stream, &bytes);
    } else {
        store.data_mut().log_dropped(len);
    }
}

fn pollable(mut store: Context<'_>) -> wasmtime::Result<(Resource<Pollable>,)> {
    store.data_mut().count_handle()?;
    Ok((Resource::new_own(0),))
}

fn poll(instance: &mut Instance<'_>, interface: &'static str, name: &str) -> Linked {
    match name {
        "[method]pollable.ready" => instance
            .func_wrap(name, |_: Context<'_>, (_,): (Resource<Pollable>,)| {
                Ok((true,))
            }),
        "[method]pollable.block" => {
            instance.func_wrap(name, |_: Context<'_>, (_,): (Resource<Pollable>,)| Ok(()))
        }
        "poll" => instance.func_wrap(
            name,
            |mut store: Context<'_>, (polled,): (Vec<Resource<Pollable>>,)| {
                if polled.is_empty() {
                    return Err(broke_down(&mut store, "it polls nothing"));
                }
                let all: Vec<u32> = (0..).take(polled.len()).collect();
                Ok((all,))
            },
        ),
        _ => refused(instance, interface, name),
    }
}

fn clock(instance: &mut Instance<'_>, interface: &'static str, name: &str) -> Linked {
    match (interface, name) {
        ("wasi:clocks/wall-clock", "now") => {
            instance.func_wrap(name, |mut store: Context<'_>, (): ()| {
                let nanos = nanos(&mut store);
                let nanoseconds = u32::try_from(nanos % NANOS_PER_SECOND).unwrap_or_default();
                let seconds = nanos / NANOS_PER_SECOND;
                Ok((Datetime {
                    seconds,
                    nanoseconds,
                },))
            })
        }
        ("wasi:clocks/wall-clock", "resolution") => {
            instance.func_wrap(name, |_: Context<'_>, (): ()| {
                let nanoseconds = u32::try_from(NANOS_PER_MILLI).unwrap_or_default();
                Ok((Datetime {
                    seconds: 0,
                    nanoseconds,
                },))
            })
        }
        (_, "now") => instance.func_wrap(name, |mut store: Context<'_>, (): ()| {
            Ok((nanos(&mut store),))
        }),
        (_, "resolution") => {
            instance.func_wrap(name, |_: Context<'_>, (): ()| Ok((NANOS_PER_MILLI,)))
        }
        // The clock stands still, so that no wait would ever end: it is over at once.
        (_, "subscribe-instant" | "subscribe-duration") => {
            instance.func_wrap(name, |store: Context<'_>, (_,): (u64,)| pollable(store))
        }
        _ => refused(instance, interface, name),
    }
}

/// Returns the time of the pass in nanoseconds since the Unix epoch, for both clocks.
fn nanos(store: &mut Context<'_>) -> u64 {
    store.data_mut().now().saturating_mul(NANOS_PER_MILLI)
}

fn random(instance: &mut Instance<'_>, interface: &'static str, name: &str) -> Linked {
    match name {
        "get-random-bytes" | "get-insecure-random-bytes" => {
            instance.func_wrap(name, |mut store: Context<'_>, (len,): (u64,)| {
                let len = u32::try_from(len).unwrap_or(u32::MAX);
                Ok((store.data_mut().random(len)?,))
            })
        }
        "get-random-u64" | "get-insecure-random-u64" => instance
            .func_wrap(name, |mut store: Context<'_>, (): ()| {
                Ok((random_number(&mut store)?,))
            }),
        "insecure-seed" => instance.func_wrap(name, |mut store: Context<'_>, (): ()| {
            let seed = (random_number(&mut store)?, random_number(&mut store)?);
            Ok((seed,))
        }),
        _ => refused(instance, interface, name),
    }
}

fn random_number(store: &mut Context<'_>) -> wasmtime::Result<u64> {
    let bytes = store.data_mut().random(8)?;
    Ok(bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// A function without a meaning for plugins: on files, which do not exist, or an exit without an answer.
fn refused(instance: &mut Instance<'_>, interface: &'static str, name: &str) -> Linked {
    let problem = format!("it called {name} of {interface}, which no plugin has");
    instance.func_new(name, move |mut store, _, _, _| {
        Err(broke_down(&mut store, &problem))
    })
}

fn broke_down(store: &mut Context<'_>, problem: &str) -> wasmtime::Error {
    store.data_mut().fault(CallFault::Trapped {
        message: problem.to_owned(),
        backtrace: Vec::new(),
    })
}
