//! Contract version 0.1.0: types as bindgen derives them from `wit/`, and imports.
//!
//! The imports are linked by hand: the answer to a read is copied into guest memory directly from the cache,
//! without an owned text in between.

use std::sync::Arc;

use innkeeper_model as model;
use wasmtime::{
    StoreContextMut,
    component::{Linker, WasmStr},
};

use self::innkeeper::plugin::types::{self as wit, ListSelector, ObjectRef, ReadError};
use crate::{log::LogLevel, state::StoreState};

wasmtime::component::bindgen!({
    world: "plugin",
    path: "../../../wit",
    ownership: Borrowing { duplicate_if_necessary: false },
});

/// Adds this version's imports to a linker.
pub(crate) fn link(linker: &mut Linker<StoreState>) -> wasmtime::Result<()> {
    // It has types only, but components import it.
    linker.instance("innkeeper:plugin/types@0.1.0")?;

    let mut host = linker.instance("innkeeper:plugin/host@0.1.0")?;
    host.func_wrap("log", log)?;
    host.func_wrap(
        "now",
        |mut store: StoreContextMut<'_, StoreState>, (): ()| Ok((store.data_mut().now(),)),
    )?;
    host.func_wrap(
        "zone-offset",
        |mut store: StoreContextMut<'_, StoreState>, (zone, unix_ms): (String, u64)| {
            let zone = Arc::from(zone);
            let time = model::ZoneTime { zone, unix_ms };
            Ok((store.data_mut().zone_offset(&time)?,))
        },
    )?;
    host.func_wrap(
        "random",
        |mut store: StoreContextMut<'_, StoreState>, (len,): (u32,)| {
            Ok((store.data_mut().random(len)?,))
        },
    )?;

    let mut cluster = linker.instance("innkeeper:plugin/cluster@0.1.0")?;
    cluster.func_wrap(
        "get",
        |mut store: StoreContextMut<'_, StoreState>, (reference,): (ObjectRef,)| {
            Ok((get(store.data_mut(), reference)?,))
        },
    )?;
    cluster.func_wrap(
        "list",
        |mut store: StoreContextMut<'_, StoreState>, (selector,): (ListSelector,)| {
            Ok((list(store.data_mut(), selector)?,))
        },
    )
}

fn log(
    mut store: StoreContextMut<'_, StoreState>,
    (level, text): (wit::LogLevel, WasmStr),
) -> wasmtime::Result<()> {
    let level = LogLevel::from(level);
    // Lifted only when the pass still has room for it: a flood costs the host no memory.
    if store.data().log_takes(level) {
        let message = text.to_str(&store)?.into_owned();
        store.data_mut().log(level, message);
    } else {
        let bytes = text.to_str(&store)?.len();
        store.data_mut().log_dropped(bytes);
    }
    Ok(())
}

fn get(
    state: &mut StoreState,
    reference: ObjectRef,
) -> wasmtime::Result<Result<Option<Arc<str>>, ReadError>> {
    let kind = state.read_kind(&reference.api_version, &reference.kind)?;
    let answer = state.get(&model::ObjectRef {
        kind,
        namespace: reference.namespace.map(Arc::from),
        name: Arc::from(reference.name),
    })?;
    Ok(answer.map_err(ReadError::from))
}

fn list(
    state: &mut StoreState,
    selector: ListSelector,
) -> wasmtime::Result<Result<Vec<Arc<str>>, ReadError>> {
    let kind = state.read_kind(&selector.api_version, &selector.kind)?;
    let answer = state.list(&model::ListSelector {
        kind,
        namespace: selector.namespace.map(Arc::from),
        label_selector: selector.label_selector.map(Arc::from),
    })?;
    Ok(answer.map_err(ReadError::from))
}
