//! Collects the SDK that `innkeeper new` unpacks into a project.

use std::{
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use toml_edit::{DocumentMut, Item, TableLike, Value};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[expect(
        clippy::disallowed_methods,
        reason = "cargo tells the directory by the environment"
    )]
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("sdk.rs"), carried(&out)).expect("OUT_DIR is writable");
}

/// Returns the files of the SDK and the lock file as Rust code.
///
/// A crate that is built from its package has neither above it. It was published, and so was its SDK.
fn carried(out: &Path) -> String {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = &own.join("../../..");
    let sdk = root.join("guests/sdk");
    let mut files = String::new();
    let mut lock = "\"\"".to_owned();
    // Cargo checks a package in the target directory, from which the same path leads elsewhere.
    if own.ends_with("host/crates/authoring") && sdk.join("Cargo.toml").exists() {
        for path in ["Cargo.toml", "Cargo.lock", "wit", "guests/sdk"] {
            println!("cargo::rerun-if-changed={}", root.join(path).display());
        }
        let manifest = out.join("sdk.toml");
        fs::write(&manifest, stand_alone(root, &sdk)).expect("OUT_DIR is writable");
        include(&mut files, Path::new("Cargo.toml"), &manifest);
        for name in ["README.md", "src", "wit"] {
            collect(&mut files, &sdk, Path::new(name));
        }
        lock = format!("include_str!({:?})", text(&root.join("Cargo.lock")));
    }
    format!("const FILES: &[(&str, &str)] = &[{files}];\nconst LOCK: &str = {lock};\n")
}

fn collect(files: &mut String, sdk: &Path, name: &Path) {
    let path = sdk.join(name);
    if !path.is_dir() {
        include(files, name, &path);
        return;
    }
    let entries = fs::read_dir(&path).expect("the SDK is readable");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("the SDK is readable").file_name())
        .collect();
    // The order of a directory is that of the file system.
    names.sort();
    for entry in names {
        collect(files, sdk, &name.join(entry));
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the paths of a checkout are UTF-8")
}

fn include(files: &mut String, name: &Path, path: &Path) {
    let name = text(name);
    let path = text(path);
    writeln!(files, "({name:?}, include_str!({path:?})),").expect("a text takes all");
}

/// Returns the manifest of the SDK as `cargo package` makes it: without inheritance and without what only its tests need.
fn stand_alone(root: &Path, sdk: &Path) -> String {
    let read = |directory: &Path| -> DocumentMut {
        fs::read_to_string(directory.join("Cargo.toml"))
            .expect("there is a manifest")
            .parse()
            .expect("a manifest is TOML")
    };
    let mut manifest = read(sdk);
    let workspace = read(root);
    manifest.remove("lints");
    manifest.remove("dev-dependencies");
    for section in ["package", "dependencies"] {
        let shared = workspace["workspace"][section]
            .as_table_like()
            .expect("the workspace has the section");
        let section = manifest[section].as_table_like_mut();
        for (key, item) in section.expect("the SDK has the section").iter_mut() {
            if let Some(inherited) = inherited(item, shared.get(key.get())) {
                *item = inherited;
            }
        }
    }
    manifest.to_string()
}

/// Returns the value of an item that inherits it, with the features that the item adds.
fn inherited(item: &Item, given: Option<&Item>) -> Option<Item> {
    let own = item.as_table_like()?;
    own.get("workspace")?;
    let mut value = given?.clone();
    let Some(more) = own.get("features").and_then(Item::as_array) else {
        return Some(value);
    };
    if let Some(version) = value.as_str() {
        let mut table = toml_edit::InlineTable::new();
        table.insert("version", version.into());
        value = Item::Value(Value::InlineTable(table));
    }
    let table: &mut dyn TableLike = value.as_table_like_mut()?;
    let features = table
        .entry("features")
        .or_insert_with(|| Item::Value(Value::Array(toml_edit::Array::new())))
        .as_array_mut()?;
    features.extend(more.iter().cloned());
    Some(value)
}
