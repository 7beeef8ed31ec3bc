//! Files that are no plugins; plugins are inspected where they are built.

use std::io::{self, Write as _};

use expect_test::expect;

use super::*;

fn inspect(bytes: &[u8], output: InspectFormat) -> (Exit, String, String) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let args = InspectArgs {
        file: file.path().to_owned(),
        output,
    };
    let (mut stdin, mut stdout, mut stderr) = (io::empty(), Vec::new(), Vec::new());
    let mut streams = Streams {
        stdin: &mut stdin,
        stdout: &mut stdout,
        stderr: &mut stderr,
    };
    let exit = run(&args, &mut streams);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (exit, text(stdout), text(stderr))
}

#[test]
fn tells_what_a_core_module_is() {
    let (exit, out, err) = inspect(b"\0asm\x01\0\0\0", InspectFormat::Text);
    assert_eq!(exit, Exit::BadUse);
    expect![[r"
        what          core module
        size          8 bytes
        digest        sha256:93a44bbb96c751218e4c00d479e4c14358122a389acca16205b1e4d0dc5f9476
    "]]
    .assert_eq(&out);
    expect![[r"
        error: this is no plugin that can be loaded: this is a core WebAssembly module, not a component: make it one with wasm-tools component new, or build its crate with innkeeper-guest-build
    "]].assert_eq(&err);
}

#[test]
fn tells_what_anything_else_is_as_json() {
    let (exit, out, err) = inspect(b"apiVersion: v1", InspectFormat::Json);
    assert_eq!(exit, Exit::BadUse);
    expect![[r#"
        {
          "contract": null,
          "digest": "sha256:f15401546056c580a76c2c3fd86b1ad831a4d70b92c3d474fd6950935fff6f27",
          "exports": [],
          "imports": [],
          "plugin": null,
          "producers": [],
          "size": 14,
          "what": "not WebAssembly"
        }
    "#]]
    .assert_eq(&out);
    expect![[r#"
        error: this is no plugin that can be loaded: this is not WebAssembly: it starts with "apiVersion: v1"; give the .wasm file that the build made
    "#]].assert_eq(&err);
}

#[test]
fn names_a_file_that_is_not_there() {
    let args = InspectArgs {
        file: "/nowhere/pond.wasm".into(),
        output: InspectFormat::Text,
    };
    let (mut stdin, mut stdout, mut stderr) = (io::empty(), Vec::new(), Vec::new());
    let mut streams = Streams {
        stdin: &mut stdin,
        stdout: &mut stdout,
        stderr: &mut stderr,
    };
    assert_eq!(run(&args, &mut streams), Exit::BadUse);
    let message = String::from_utf8(stderr).unwrap();
    assert!(message.contains("/nowhere/pond.wasm"), "{message}");
}
