//! Turns `src/catalog.yaml` into the tables of `src/catalog.rs`.

use std::{collections::BTreeMap, env, error::Error, fmt::Write, fs, path::Path};

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Family {
    keys: BTreeMap<String, Definition>,
    #[serde(default)]
    old: BTreeMap<String, Definition>,
    common: Vec<String>,
    types: Vec<Type>,
    #[serde(default)]
    exclusive: BTreeMap<String, Vec<String>>,
}

/// The key's description, which depends on how the value is written.
type Definition = BTreeMap<String, String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Type {
    name: String,
    rendered: Option<String>,
    #[serde(default)]
    splits: bool,
    #[serde(default)]
    s3_like: bool,
    #[serde(default)]
    headers: bool,
    keys: Vec<String>,
}

#[expect(clippy::disallowed_methods, reason = "cargo sets OUT_DIR")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/catalog.yaml");
    let families: BTreeMap<String, Family> =
        serde_saphyr::from_str(&fs::read_to_string("src/catalog.yaml")?)?;
    let mut tables = String::new();
    for (name, family) in &families {
        write_family(&mut tables, &name.to_uppercase(), family)?;
    }
    let path = Path::new(&env::var("OUT_DIR")?).join("catalog.rs");
    Ok(fs::write(path, tables)?)
}

fn write_family(tables: &mut String, name: &str, family: &Family) -> Result<(), Box<dyn Error>> {
    writeln!(
        tables,
        "pub(crate) const {name}: Family = Family {{ types: &["
    )?;
    for type_ in &family.types {
        let Type {
            name,
            splits,
            s3_like,
            headers,
            ..
        } = type_;
        let rendered = type_.rendered.as_ref().unwrap_or(name);
        write!(
            tables,
            "Type {{ name: {name:?}, rendered: {rendered:?}, splits_command: {splits}, is_s3_like: {s3_like}, \
             has_headers: {headers}, keys: &["
        )?;
        for key in type_.keys.iter().chain(&family.common) {
            let name = key.trim_end_matches('!');
            let definition = family
                .keys
                .get(name)
                .ok_or_else(|| format!("no key {name}"))?;
            write!(
                tables,
                "{}, ",
                key_of(name, definition, key.ends_with('!'))?
            )?;
        }
        writeln!(tables, "] }},")?;
    }
    writeln!(tables, "], old: &[")?;
    for (name, definition) in &family.old {
        writeln!(tables, "{},", key_of(name, definition, false)?)?;
    }
    writeln!(tables, "], exclusive: &[")?;
    for (key, types) in &family.exclusive {
        writeln!(tables, "({key:?}, &{types:?}),")?;
    }
    Ok(writeln!(tables, "] }};")?)
}

fn key_of(
    name: &str,
    definition: &Definition,
    is_required: bool,
) -> Result<String, Box<dyn Error>> {
    let (form, description) = definition
        .first_key_value()
        .ok_or_else(|| format!("{name} has no form"))?;
    let is_secret = form == "secret";
    let form = match form.as_str() {
        "text" | "secret" => "Text".to_owned(),
        "texts" => "Texts".to_owned(),
        "number" => "Number".to_owned(),
        "port" => "Port".to_owned(),
        "flag" => "Flag".to_owned(),
        other => {
            let choices = other
                .strip_prefix("one of ")
                .ok_or_else(|| format!("{name}: no form {other}"))?;
            format!("Choice(&{:?})", choices.split(", ").collect::<Vec<_>>())
        }
    };
    Ok(format!(
        "Key {{ name: {name:?}, form: Form::{form}, description: {description:?}, is_secret: {is_secret}, \
         is_required: {is_required} }}"
    ))
}
