//! Archives of each form pass through the script of a Restore: all values in the plugin's lists, with gobackup if
//! available, and with the stand-in otherwise.

use std::{fs, process::Command};

use super::{
    case::{Case, files, shelf, stored},
    gobackup::program,
    restore_script::real::is_full,
    run::Run,
    *,
};
use crate::{
    programs::{self, OPENSSL, openssl::CIPHERS},
    render::{COMPRESSION_ALIASES, COMPRESSIONS},
};

/// Returns the compressions whose programs this machine has.
fn compressions() -> Vec<Value> {
    let has = |program: &str| {
        Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .output()
            .unwrap()
            .status
            .success()
    };
    let is_there = |type_: &&str| match *type_ {
        "Z" | "taZ" | "tar.Z" => has("compress"),
        type_ if type_.contains("lzo") => has("lzop"),
        "lz" | "tar.lz" => has("lzip"),
        type_ if type_.contains("zst") => has("zstd"),
        _ => true,
    };
    let aliases = COMPRESSION_ALIASES.iter().map(|alias| &alias.0);
    let blocks = COMPRESSIONS
        .iter()
        .chain(aliases)
        .copied()
        .filter(is_there)
        .map(|type_| json!({ "type": type_ }));
    std::iter::once(Value::Null).chain(blocks).collect()
}

/// No encryption, each cipher in both ways, and each option.
fn encryptions() -> Vec<Value> {
    let ciphers = CIPHERS.split(' ').flat_map(|cipher| {
        [
            json!({ "cipher": cipher }),
            json!({ "args": format!("-pbkdf2 -{cipher}") }),
        ]
    });
    let options = programs::samples(&OPENSSL)
        .into_iter()
        .map(|option| json!({ "args": format!("-pbkdf2  {option}") }));
    let further = [
        json!({}),
        json!({ "base64": true, "args": " -iter 600" }),
        json!({ "salt": false }),
        json!({ "salt": true, "args": "-md sha512\t-salt" }),
        json!({ "cipher": "AES-128-CTR", "base64": true, "salt": false }),
    ];
    let blocks = further
        .into_iter()
        .chain(options)
        .chain(ciphers)
        .map(|mut block| {
            block["type"] = json!("openssl");
            block["passwordRef"] = json!({ "name": "keys", "key": "key" });
            block
        });
    // As many without, so that they meet all other settings too.
    blocks
        .enumerate()
        .flat_map(|(place, block)| {
            if place % 3 == 0 {
                vec![Value::Null, block]
            } else {
                vec![block]
            }
        })
        .collect()
}

/// Returns no chunks, and chunks with each unit and suffix form.
fn splits() -> Vec<Value> {
    let blocks = programs::CHUNK_UNITS
        .iter()
        .map(|unit| match *unit {
            "" => "700".to_owned(),
            unit => format!("2{unit}"),
        })
        .enumerate()
        .map(|(place, size)| {
            let suffixes = [
                json!({ "chunkSize": size }),
                json!({ "chunkSize": size, "numericSuffixes": false }),
                json!({ "chunkSize": size, "suffixLength": 4, "numericSuffixes": true }),
                json!({ "chunkSize": size, "suffixLength": 16, "numericSuffixes": false }),
            ];
            suffixes[place % suffixes.len()].clone()
        });
    std::iter::once(Value::Null).chain(blocks).collect()
}

/// Archives a file, restores it and compares it; false if openssl does not have the cipher.
fn is_restored(spec: &Value, program: Option<&str>, content: &[u8]) -> bool {
    let case = Case::new(spec, &[], &[shelf()]).value("ENC_PASSWORD", b"two words'\"$");
    case.run.directory("volumes/data/docs");
    fs::write(case.run.file("volumes/data/docs/a b", ""), content).unwrap();
    let result = case.perform(program);
    if result.code != Some(0) && result.message.contains("OpenSSL encrypt failed") {
        return false;
    }
    let spec_of_restore = json!({ "confirm": "", "archive": { "targetPath": "/data/back" } });
    let restored = case.restore(&stored(&result), &spec_of_restore);
    assert_eq!(restored.code, Some(0), "{spec}: {restored:?}");
    let back = files(&case.run, "volumes/data/back");
    let path = back
        .keys()
        .find(|path| path.ends_with("/docs/a b"))
        .unwrap();
    assert_eq!(fs::read(path).unwrap(), content, "{spec}");
    true
}

#[test]
fn every_form_of_an_archive_is_restored() {
    let program = program();
    let content: Vec<u8> = (0..6000_u32)
        .map(|number| (number.wrapping_mul(number) >> 7).to_le_bytes()[0])
        .collect();
    let compressions = compressions();
    let encryptions = encryptions();
    let splits = splits();
    let most = compressions.len().max(splits.len());
    let number = match (&program, is_full()) {
        (None, false) => most,
        _ => most.max(encryptions.len()),
    };
    // The short run has each compression and unit, and some ciphers.
    let step = encryptions.len() / number;
    let mut refused = 0;
    for place in 0..number {
        let mut spec = json!({ "archive": { "includes": ["/data/docs"] } });
        let settings = [
            ("compressWith", &compressions[place % compressions.len()]),
            ("encodeWith", &encryptions[place * step % encryptions.len()]),
            ("splitWith", &splits[place % splits.len()]),
        ];
        for (field, value) in settings.into_iter().filter(|setting| !setting.1.is_null()) {
            spec[field] = value.clone();
        }
        refused += usize::from(!is_restored(&spec, program.as_deref(), &content));
    }
    assert!(refused * 3 < number, "{refused} of {number}");
}

#[test]
fn modes_are_kept_and_lost_owners_are_named() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    let Some(own) = Run::owner() else { return };
    let spec = json!({ "archive": { "includes": ["/data/uploads"] } });
    let case = Case::new(&spec, &[], &[shelf()]);
    let directory = case.run.directory("volumes/data/uploads");
    for (name, mode, owner) in [("a", 0o664, own), ("b", 0o646, 1000), ("c", 0o600, own)] {
        let path = case.run.file(&format!("volumes/data/uploads/{name}"), name);
        chown(&path, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o2775)).unwrap();
    let result = case.perform(program().as_deref());
    let restored = case.restore(
        &stored(&result),
        &json!({ "confirm": "", "archive": { "targetPath": "/data/back" } }),
    );
    assert_eq!(restored.code, Some(0), "{restored:?}");
    let message =
        format!("owners were not kept: files of 1000/1000 (user/group) belong to {own}/{own} now");
    assert!(restored.message.contains(&message), "{restored:?}");
    let back = files(&case.run, "volumes/data/back");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let modes = back
        .keys()
        .map(|path| mode(path.as_ref()))
        .collect::<Vec<_>>();
    assert_eq!(modes, [0o664, 0o646, 0o600]);
    let first = std::path::Path::new(back.keys().next().unwrap());
    assert_eq!(mode(first.parent().unwrap()), 0o2775);
}

// The user sets the format of names, which may look like an extension.
#[test]
fn a_format_of_names_with_extensions_is_restored() {
    let program = program();
    let password = json!({ "name": "keys", "key": "key" });
    for format in [
        "2006.enc-x",
        "2006.tar.gz-01",
        "x.tgz.2006.tar.bz2",
        "a.enc",
        "2006.tar.xz.enc-02",
    ] {
        for (type_, encode, split) in [
            ("tar", false, false),
            ("tar", false, true),
            ("xz", true, true),
            ("tgz", true, false),
        ] {
            let mut spec = json!({
                "archive": { "includes": ["/data/docs"] },
                "compressWith": { "type": type_, "filenameFormat": format },
            });
            if encode {
                spec["encodeWith"] =
                    json!({ "type": "openssl", "args": "-pbkdf2", "passwordRef": password });
            }
            if split {
                spec["splitWith"] = json!({ "chunkSize": "700" });
            }
            assert!(is_restored(&spec, program.as_deref(), &[7; 3000]), "{spec}");
        }
    }
}
