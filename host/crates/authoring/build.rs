//! Collects the SDK and the kit that `innkeeper new` unpacks into a project.

use std::{
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use toml_edit::{DocumentMut, Item, TableLike, Value};

fn main() {
    // Without such a line, cargo runs this script after every change in the package.
    println!("cargo::rerun-if-changed=build.rs");
    #[expect(
        clippy::disallowed_methods,
        reason = "cargo tells the directory by the environment"
    )]
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("sdk.rs"), carried(&out)).expect("OUT_DIR is writable");
}

/// The carried crates below `guests`, with the parts of each.
const CRATES: [(&str, &[&str]); 2] = [
    ("sdk", &["README.md", "src", "wit"]),
    ("kit", &["README.md", "src"]),
];

/// Returns the files of the carried crates and the lock file as Rust code.
///
/// Both are empty if this crate is built from its published package: projects then use the published SDK and kit.
fn carried(out: &Path) -> String {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = &own.join("../../..");
    let guests = root.join("guests");
    let (mut files, mut lock) = (String::new(), "\"\"".to_owned());
    // Cargo checks a package in the target directory, from which the same path leads elsewhere.
    if own.ends_with("host/crates/authoring") && guests.join("sdk/Cargo.toml").exists() {
        for path in [
            "Cargo.toml",
            "Cargo.lock",
            "wit",
            "guests/sdk",
            "guests/kit",
        ] {
            println!("cargo::rerun-if-changed={}", root.join(path).display());
        }
        for (name, parts) in CRATES {
            let manifest = out.join(format!("{name}.toml"));
            fs::write(&manifest, stand_alone(root, &guests.join(name)))
                .expect("OUT_DIR is writable");
            include(&mut files, &Path::new(name).join("Cargo.toml"), &manifest);
            for part in parts {
                collect(&mut files, &guests, &Path::new(name).join(part));
            }
        }
        lock = format!("include_str!({:?})", text(&root.join("Cargo.lock")));
    }
    format!("const FILES: &[(&str, &str)] = &[{files}];\nconst LOCK: &str = {lock};\n")
}

fn collect(files: &mut String, guests: &Path, name: &Path) {
    let path = guests.join(name);
    if !path.is_dir() {
        include(files, name, &path);
        return;
    }
    let entries = fs::read_dir(&path).expect("the checkout is readable");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("the checkout is readable").file_name())
        .collect();
    // The order of a directory is that of the file system.
    names.sort();
    for entry in names {
        collect(files, guests, &name.join(entry));
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

/// Returns a carried crate's manifest as `cargo package` makes it: without inheritance and test dependencies.
fn stand_alone(root: &Path, member: &Path) -> String {
    let read = |directory: &Path| -> DocumentMut {
        fs::read_to_string(directory.join("Cargo.toml"))
            .expect("there is a manifest")
            .parse()
            .expect("a manifest is TOML")
    };
    let (mut manifest, workspace) = (read(member), read(root));
    // The lints are the workspace's, and nobody runs the tests in a project.
    manifest.remove("lints");
    manifest.remove("dev-dependencies");
    for section in ["package", "dependencies"] {
        let shared = workspace["workspace"][section]
            .as_table_like()
            .expect("the workspace has the section");
        let section = manifest[section].as_table_like_mut();
        for (key, item) in section.expect("the crate has the section").iter_mut() {
            if let Some(inherited) = inherited(item, shared.get(key.get())) {
                *item = inherited;
            }
            // The carried crates stay side by side.
            let path = item.get("path").and_then(Item::as_str);
            if let Some(name) = path.and_then(|path| path.strip_prefix("guests/")) {
                item["path"] = toml_edit::value(format!("../{name}"));
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
