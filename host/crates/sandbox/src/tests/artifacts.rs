//! The accepted bytes, and the cache.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use innkeeper_model::{Digest, error_chain};

use super::*;
use crate::{
    artifact::{Cache, Needs, What, check, inspect},
    testing::{Description, component, contract, guest},
};

/// A core module for a component that does nothing; the mark stands for more fields.
fn module(more: &str) -> String {
    format!(
        r#"(module {more}
          (memory (export "memory") 1)
          (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (unreachable))
          (func (export "innkeeper:plugin/reconciler@0.1.0#describe") (result i32) (unreachable))
          (func (export "innkeeper:plugin/reconciler@0.1.0#reconcile")
            (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (unreachable)))"#
    )
}

fn refusal(bytes: &[u8]) -> artifact::Error {
    refusal_with(bytes, &artifact::Limits::default())
}

fn refusal_with(bytes: &[u8], limits: &artifact::Limits) -> artifact::Error {
    let error = check(bytes, limits).expect_err("it should be refused");
    let compiled = artifact::compile(&ENGINE, bytes, limits, None);
    assert_eq!(
        compiled.err().map(|error| error.to_string()),
        Some(error.to_string()),
        "nothing is compiled that is refused"
    );
    error
}

#[test]
fn tells_what_a_component_is() {
    let bytes = guest().build();
    let inspection = check(&bytes, &artifact::Limits::default()).unwrap();
    assert_eq!(inspection.what, What::Component);
    assert_eq!(inspection.contract.as_deref(), Some("0.1.0"));
    assert_eq!(inspection.size_bytes, bytes.len());
    assert_eq!(inspection.digest, Digest::hash(&bytes));
    assert_eq!(
        inspection.imports,
        [
            "innkeeper:plugin/types@0.1.0",
            "innkeeper:plugin/host@0.1.0",
            "innkeeper:plugin/cluster@0.1.0"
        ]
    );
    assert_eq!(inspection.exports, ["innkeeper:plugin/reconciler@0.1.0"]);
    assert!(
        inspection
            .producers
            .iter()
            .any(|tool| tool.name == "wit-component"),
        "{:?}",
        inspection.producers
    );
}

#[test]
fn rejects_empty_files() {
    assert!(matches!(refusal(b""), artifact::Error::Empty));
}

#[test]
fn rejects_what_is_not_wasm() {
    let error = refusal(b"#!/bin/sh\necho no plugin\n");
    assert!(matches!(error, artifact::Error::NotWasm { .. }), "{error}");
    assert!(error.to_string().contains("#!/bin/sh"), "{error}");
    assert!(matches!(refusal(b"\0as"), artifact::Error::NotWasm { .. }));
}

#[test]
fn rejects_core_modules() {
    let bytes = wat::parse_str("(module)").unwrap();
    assert!(matches!(refusal(&bytes), artifact::Error::CoreModule));
    assert_eq!(inspect(&bytes).what, What::CoreModule);
}

#[test]
fn rejects_unknown_encodings() {
    let error = refusal(b"\0asm\x0e\0\x01\0");
    assert!(
        matches!(
            error,
            artifact::Error::UnknownEncoding {
                version: 14,
                layer: 1
            }
        ),
        "{error}"
    );
}

#[test]
fn rejects_damaged_components() {
    let mut bytes = guest().build();
    bytes.truncate(bytes.len() / 2);
    assert!(matches!(refusal(&bytes), artifact::Error::Truncated));
    let last = guest().build().len() - 1;
    assert!(matches!(
        refusal(&guest().build()[..last]),
        artifact::Error::Truncated
    ));
    let mut bytes = guest().build();
    bytes.insert(8, 0xff);
    assert!(matches!(
        refusal(&bytes),
        artifact::Error::Malformed { .. } | artifact::Error::Truncated
    ));
}

#[test]
fn rejects_large_files() {
    let limits = artifact::Limits {
        bytes_max: 100,
        ..artifact::Limits::default()
    };
    let error = refusal_with(&guest().build(), &limits);
    assert!(
        matches!(error, artifact::Error::TooLarge { max: 100 }),
        "{error}"
    );
}

#[test]
fn rejects_components_of_another_world() {
    let wit = "package other:thing; world plugin { export run: func(); }";
    let module = r#"(module (memory (export "memory") 1) (func (export "run")))"#;
    let error = refusal(&component(wit, module));
    assert!(
        matches!(error, artifact::Error::OtherWorld { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("it exports run"), "{error}");
}

#[test]
fn rejects_other_contract_versions() {
    let wit = contract().replace("innkeeper:plugin@0.1.0", "innkeeper:plugin@0.7.0");
    let bytes = component(&wit, &module("").replace("@0.1.0", "@0.7.0"));
    let error = refusal(&bytes);
    assert!(
        matches!(error, artifact::Error::UnknownContract { .. }),
        "{error}"
    );
    let text = error.to_string();
    assert!(text.contains("0.7.0") && text.contains("0.1.0"), "{text}");
}

#[test]
fn rejects_imports_by_name() {
    let sockets = "package wasi:sockets@0.3.0 { interface tcp { connect: func(); } }
        package wasi:http@0.2.0 { interface handler { get: func(); } }";
    let wit = format!(
        "{}\n{sockets}",
        contract().replace(
            "  import host;",
            "  import host; import wasi:sockets/tcp@0.3.0; import wasi:http/handler@0.2.0;"
        )
    );
    let imports = r#"(import "wasi:sockets/tcp@0.3.0" "connect" (func))
        (import "wasi:http/handler@0.2.0" "get" (func))"#;
    let error = refusal(&component(&wit, &module(imports)));
    let artifact::Error::ForbiddenImports { imports } = &error else {
        panic!("{error}");
    };
    assert_eq!(imports.len(), 2);
    assert!(
        imports[0].starts_with("wasi:sockets/tcp@0.3.0 (plugins have no network"),
        "{error}"
    );
    assert!(
        imports[1].starts_with("wasi:http/handler@0.2.0 (plugins have no network"),
        "{error}"
    );
}

#[test]
fn rejects_missing_exports() {
    let wit = contract().replace("export reconciler;", "export run: func();");
    let module = r#"(module
        (import "innkeeper:plugin/host@0.1.0" "now" (func (result i64)))
        (memory (export "memory") 1) (func (export "run")))"#;
    let error = refusal(&component(&wit, module));
    assert!(matches!(error, artifact::Error::MissingExport), "{error}");
}

#[test]
fn rejects_contracts_that_lie_about_their_types() {
    let wit = contract().replace("now: func() -> u64;", "now: func() -> u32;");
    let import = r#"(import "innkeeper:plugin/host@0.1.0" "now" (func (result i32)))"#;
    let bytes = component(&wit, &module(import));
    let error = description_error(&bytes);
    assert!(matches!(error, Error::Link { .. }), "{error}");

    let wit = contract().replace("    config: json,\n", "");
    assert_ne!(wit, contract());
    let shorter = module("").replace(
        "(param i32 i32 i32 i32 i32 i32 i32 i32 i32)",
        "(param i32 i32 i32 i32 i32 i32 i32)",
    );
    let bytes = component(&wit, &shorter);
    let error = description_error(&bytes);
    assert!(matches!(error, Error::Link { .. }), "{error}");
}

fn check_capped(more: &str, what: &str, cap: impl FnOnce(&mut artifact::Limits)) {
    let mut limits = artifact::Limits::default();
    cap(&mut limits);
    let error = refusal_with(&component(&contract(), &module(more)), &limits);
    let artifact::Error::TooComplex { what: found, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*found, what);
}

#[test]
fn refuses_types_that_are_nested_deeper_than_a_stack() {
    use wasm_encoder::Encode as _;

    // Type and declaration counts in one byte each.
    let nested = |levels: usize| {
        let content = [
            [1_u8].as_slice(),
            &[0x42, 1, 1].repeat(levels - 1),
            &[0x42, 0],
        ]
        .concat();
        let mut bytes = guest().build();
        // A type section.
        bytes.push(7);
        content.as_slice().encode(&mut bytes);
        bytes
    };
    let refusal_at = |levels: usize| {
        let limits = artifact::Limits::default();
        check(&nested(levels), &limits).err()
    };
    assert!(refusal_at(32).is_none());
    for levels in [33, 1_000, 1_000_000] {
        let error = refusal_at(levels).unwrap();
        assert_eq!(
            error.to_string(),
            "the component has 33 levels of types, at most 32 are allowed"
        );
    }
}

#[test]
fn rejects_parts_beyond_their_caps() {
    check_capped(&"(func)".repeat(50), "functions", |limits| {
        limits.functions_max = 40;
    });
    check_capped(&"(table 1 funcref)".repeat(9), "tables", |limits| {
        limits.tables_max = 8;
    });
    check_capped(&r#"(data "x")"#.repeat(9), "data segments", |limits| {
        limits.data_segments_max = 8;
    });
    check_capped(&"(elem func)".repeat(9), "element segments", |limits| {
        limits.element_segments_max = 8;
    });
    let globals = "(global i32 (i32.const 0))".repeat(9);
    check_capped(&globals, "globals", |limits| limits.globals_max = 8);
    check_capped("", "memories", |limits| limits.memories_max = 0);
    check_capped("", "modules", |limits| limits.modules_max = 1);
}

#[test]
fn rejects_functions_beyond_their_caps() {
    let locals = format!("(func (local {}))", "i32 ".repeat(200));
    check_capped(&locals, "locals in one function", |limits| {
        limits.locals_max = 100;
    });
    let body = format!("(func {})", "(drop (i32.const 1))".repeat(200));
    check_capped(&body, "bytes in one function", |limits| {
        limits.body_bytes_max = 500;
    });
}

#[test]
fn reads_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.wasm");
    let missing = artifact::read_file(&path, 10).unwrap_err();
    assert!(
        matches!(missing, artifact::Error::NotFound { .. }),
        "{missing}"
    );
    fs::write(&path, "0123456789").unwrap();
    assert_eq!(artifact::read_file(&path, 10).unwrap(), b"0123456789");
    let large = artifact::read_file(&path, 9).unwrap_err();
    assert!(
        matches!(large, artifact::Error::TooLarge { max: 9 }),
        "{large}"
    );
    let directory = artifact::read_file(dir.path(), 9).unwrap_err();
    assert!(
        matches!(directory, artifact::Error::ReadFile { .. }),
        "{directory}"
    );
}

fn compile_with(cache: &Cache, bytes: &[u8]) -> artifact::Artifact {
    artifact::compile(&ENGINE, bytes, &artifact::Limits::default(), Some(cache)).unwrap()
}

fn entries(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    entries
}

#[test]
fn compiled_code_is_kept_and_taken_again() {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("a/b");
    let cache = Cache::open(&directory).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);

    let bytes = guest().build();
    drop(compile_with(&cache, &bytes));
    let files = entries(&directory);
    assert_eq!(files.len(), 2, "{files:?}");
    for file in &files {
        assert_eq!(mode(file), 0o400, "{}", file.display());
    }
    let written = fs::metadata(&files[0]).unwrap().modified().unwrap();
    let artifact = compile_with(&cache, &bytes);
    assert_eq!(
        fs::metadata(&files[0]).unwrap().modified().unwrap(),
        written
    );
    // The component from the cache runs.
    Described::load(&ENGINE, &artifact, &Limits::default()).unwrap();
}

#[test]
fn damaged_entries_are_made_again() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let bytes = guest().build();
    drop(compile_with(&cache, &bytes));
    let [code, sum] = entries(dir.path()).try_into().unwrap();
    let good = fs::read(&code).unwrap();
    for damage in [Vec::new(), good[..good.len() / 2].to_vec(), {
        let mut flipped = good.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        flipped
    }] {
        fs::remove_file(&code).unwrap();
        fs::write(&code, damage).unwrap();
        let artifact = compile_with(&cache, &bytes);
        Described::load(&ENGINE, &artifact, &Limits::default()).unwrap();
        assert_eq!(fs::read(&code).unwrap(), good);
    }
    // A sum that fits bytes that are no compiled code for this engine.
    for file in [&code, &sum] {
        fs::remove_file(file).unwrap();
    }
    fs::write(&code, "no code").unwrap();
    fs::write(&sum, Digest::hash(b"no code").to_string()).unwrap();
    let artifact = compile_with(&cache, &bytes);
    Described::load(&ENGINE, &artifact, &Limits::default()).unwrap();
}

#[test]
fn engines_that_differ_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(&dir.path().join("c")).unwrap();
    let bytes = guest().build();
    let metered = engine(Metering::Fuel);
    for engine in [&*ENGINE, &metered, &*ENGINE, &metered] {
        let limits = artifact::Limits::default();
        let artifact = artifact::compile(engine, &bytes, &limits, Some(&cache)).unwrap();
        Described::load(engine, &artifact, &Limits::default()).unwrap();
    }
    assert_eq!(entries(&dir.path().join("c")).len(), 4);
}

#[test]
fn directories_that_others_may_write_to_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o770)).unwrap();
    let error = Cache::open(dir.path()).unwrap_err();
    assert!(
        matches!(error, artifact::Error::UnsafeCacheDirectory { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("chmod 700"), "{error}");
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(
        Cache::open(&file).unwrap_err(),
        artifact::Error::OpenCache { .. }
    ));
}

/// A different component for each number.
fn numbered(number: usize) -> Vec<u8> {
    let name = format!("web-{number}");
    guest()
        .describing(Description {
            name,
            ..Description::default()
        })
        .build()
}

/// Returns a directory's size with all entries, as the bound counts it.
fn size_of(directory: &Path) -> u64 {
    let files = entries(directory);
    files
        .iter()
        .map(|file| fs::metadata(file).unwrap().len() + 4096)
        .sum()
}

fn has_code(directory: &Path, bytes: &[u8]) -> bool {
    let name = format!("{}.epochs.cwasm", Digest::hash(bytes).to_hex());
    directory.join(name).exists()
}

#[test]
fn the_directory_stays_bounded_while_different_components_are_compiled() {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("c");
    let cache = Cache::open(&directory).unwrap();
    drop(compile_with(&cache, &numbered(0)));
    // The names have the same length, but code is padded to pages.
    let bytes_max = size_of(&directory) * 4 + 4096;
    let cache = cache.with_bytes_max(bytes_max);
    let active = Needs {
        kept: [Digest::hash(&numbered(0))].into(),
        ..Needs::default()
    };
    cache.need("web", active);
    cache.know_all_needs();
    for number in 1..10 {
        let artifact = compile_with(&cache, &numbered(number));
        let size = size_of(&directory);
        assert!(
            size <= bytes_max,
            "{size} bytes after {number}, {bytes_max} are allowed"
        );
        assert!(has_code(&directory, &numbered(number)));
        // Removed code stays mapped.
        Described::load(&ENGINE, &artifact, &Limits::default()).unwrap();
    }
    assert!(
        has_code(&directory, &numbered(0)),
        "the active revision stays"
    );
    assert!(
        !has_code(&directory, &numbered(1)),
        "the oldest one is gone"
    );
    cache.need("web", Needs::default());
    assert!(!has_code(&directory, &numbered(0)), "it is needed no more");
}

#[test]
fn a_component_that_is_used_again_stays_longer() {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("c");
    let cache = Cache::open(&directory).unwrap();
    for number in 0..3 {
        drop(compile_with(&cache, &numbered(number)));
    }
    let cache = cache.with_bytes_max(size_of(&directory) + 4096);
    drop(compile_with(&cache, &numbered(0)));
    drop(compile_with(&cache, &numbered(3)));
    let remaining = [0, 1, 2, 3].map(|number| has_code(&directory, &numbered(number)));
    assert_eq!(remaining, [true, false, true, true]);
}

/// The check before the compiler and the compiler have the same features.
#[test]
fn components_that_use_proposals_are_compiled_or_refused_by_name() {
    let swizzle = "(i8x16.relaxed_swizzle (local.get 0) (local.get 1))";
    let rows = [
        ("(func (drop (v128.const i32x4 0 0 0 0)))", None),
        (
            &*format!("(func (param v128 v128) (result v128) {swizzle})"),
            None,
        ),
        ("(func $f (return_call $f))", None),
        (
            "(func (param $p i32) (result i32) (i32.extend8_s (local.get $p)))",
            None,
        ),
        ("(memory $second 1)", None),
        ("(table $functions 1 funcref)", None),
        ("(memory $wide i64 1)", Some("memory64 must be enabled")),
        (
            "(memory $shared 1 2 shared)",
            Some("threads must be enabled"),
        ),
        ("(type $t (struct (field i32)))", Some("gc")),
        ("(func (param externref))", Some("gc")),
        ("(tag $e) (func (throw $e))", Some("exceptions")),
    ];
    for (more, problem) in rows {
        let bytes = component(&contract(), &module(more));
        match problem {
            None => {
                check(&bytes, &artifact::Limits::default()).unwrap();
                let compiled =
                    artifact::compile(&ENGINE, &bytes, &artifact::Limits::default(), None);
                compiled.unwrap();
            }
            Some(problem) => {
                let error = error_chain(&refusal(&bytes)).to_string();
                let expected = "a feature of WebAssembly that plugins do not have";
                assert!(error.contains(expected), "{more}: {error}");
                assert!(error.contains(problem), "{more}: {error}");
            }
        }
    }
}
