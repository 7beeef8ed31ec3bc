//! Workspace builds, each in a separate directory.

use super::*;

/// A workspace with a guest `pond` below `plugins`, and a crate `shore` that is no guest.
fn workspace(code: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let file = |path: &str, text: &str| {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    file(
        "Cargo.toml",
        "[workspace]\nresolver = \"3\"\nmembers = [\"plugins/pond\", \"shore\"]\n\
         [profile.guest]\ninherits = \"release\"\n",
    );
    file(
        "plugins/pond/Cargo.toml",
        "[package]\nname = \"pond-plugin\"\nedition = \"2024\"\n\
         [lib]\ncrate-type = [\"cdylib\", \"rlib\"]\n",
    );
    file("plugins/pond/src/lib.rs", code);
    file(
        "shore/Cargo.toml",
        "[package]\nname = \"shore\"\nedition = \"2024\"\n",
    );
    file("shore/src/lib.rs", "");
    directory
}

fn request(root: &Path, package: &str) -> Request {
    Request {
        workspace_root: root.to_owned(),
        guests: vec![Guest::for_package(package)],
        target_dir: root.join("target"),
        out_dir: root.join("out"),
        profile: "guest".to_owned(),
        locked: false,
    }
}

#[track_caller]
fn error_of(root: &Path, package: &str) -> Error {
    build(
        &Environment::default(),
        &Toolchain::Installed,
        &request(root, package),
        &mut |_| (),
    )
    .unwrap_err()
}

#[test]
fn names_a_component_after_its_package_or_its_directory() {
    assert_eq!(Guest::for_package("innkeeper-guest-pond").name, "pond");
    assert_eq!(Guest::for_package("pond").name, "pond");

    let root = workspace("");
    let environment = Environment::default();
    let below = |directory| {
        let directory = Path::new(directory);
        Guest::all_below(&environment, root.path(), directory).unwrap()
    };
    let pond = Guest {
        package: "pond-plugin".to_owned(),
        name: "pond".to_owned(),
    };
    assert_eq!(below("plugins"), std::slice::from_ref(&pond));
    assert_eq!(below(""), [pond], "a crate without a module is no guest");
    assert_eq!(below("elsewhere"), []);
}

#[test]
fn rejects_read_workspace() {
    let empty = tempfile::tempdir().unwrap();
    let error = error_of(empty.path(), "pond-plugin");
    assert!(matches!(error, Error::ReadWorkspace { .. }), "{error:?}");
}

#[test]
fn rejects_unknown_package() {
    let root = workspace("");
    let error = error_of(root.path(), "lake");
    assert!(matches!(error, Error::UnknownPackage { .. }), "{error:?}");
    let message = error.to_string();
    assert!(
        message.ends_with("its guests are: pond-plugin"),
        "{message}"
    );
}

#[test]
fn rejects_no_module() {
    let root = workspace("");
    let error = error_of(root.path(), "shore");
    assert!(matches!(error, Error::NoModule { .. }), "{error:?}");
    assert!(error.to_string().ends_with("shore/Cargo.toml"), "{error}");
}

#[test]
fn rejects_compile() {
    let root = workspace("compile_error!(\"not yet\");");
    let error = error_of(root.path(), "pond-plugin");
    assert!(matches!(error, Error::Compile { .. }), "{error:?}");
    assert!(!root.path().join("out").exists(), "nothing is written");
}

#[test]
fn rejects_encode() {
    let directory = tempfile::tempdir().unwrap();
    let module = directory.path().join("pond.wasm");
    fs::write(&module, b"\0asm\x01\0\0\0").unwrap();
    let out = directory.path().join("out");
    let error = wrap(&Guest::for_package("pond"), &module, &out).unwrap_err();
    assert!(matches!(error, Error::Encode { .. }), "{error:?}");
    assert!(!out.exists(), "nothing is written");
}

#[test]
fn rejects_read_module() {
    let directory = tempfile::tempdir().unwrap();
    let module = directory.path().join("pond.wasm");
    let error = wrap(&Guest::for_package("pond"), &module, directory.path()).unwrap_err();
    assert!(matches!(error, Error::ReadModule { .. }), "{error:?}");
}

#[test]
fn keeps_paths_of_the_machine_out_of_the_module() {
    let environment = Environment {
        cargo_home: Some(PathBuf::from("/home/\"me\"/.cargo")),
        ..Environment::default()
    };
    let toolchain = Toolchain::BuildStd {
        rustc: PathBuf::from("rustc"),
        sysroot: PathBuf::from("/usr"),
        linker: PathBuf::from("wasm-ld"),
    };
    let config = remap_config(&environment, &toolchain, &request(Path::new("/w"), "pond"));
    let expected = [
        "target.wasm32-unknown-unknown.rustflags=[",
        r#""--remap-path-prefix=/home/\"me\"/.cargo=/cargo", "#,
        r#""--remap-path-prefix=/w/target=/target", "#,
        r#""--remap-path-prefix=/usr/lib/rustlib/src/rust=/rust"]"#,
    ];
    assert_eq!(config.to_str().unwrap(), expected.concat());
}
