//! `deploy/release`: what it rejects, and what a release contains. Only `tests/full` makes a release, which links for
//! minutes.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use innkeeper_model::Digest;
use innkeeper_tests::{
    manifest::root,
    pod::Image,
    process::{is_full, path_from_env},
    registry::{Client, Registry, key_file},
};

use serde_json::{Value, json};

use crate::cosign::{check_cosign, cosign};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Removes the variables that cargo gives to tests: build scripts would run again, here and at the next build.
const WITHOUT_CARGO: &str = "unset $(compgen -e CARGO_MANIFEST_) $(compgen -e CARGO_PKG_)";
/// The maximum size of a release's unpacked image.
const IMAGE_BYTES_MAX: u64 = 60_000_000;

fn release(checkout: &Path, arguments: &[&str]) -> Output {
    Command::new(checkout.join("deploy/release"))
        .args(arguments)
        .output()
        .unwrap()
}

#[track_caller]
fn check_refused(checkout: &Path, arguments: &[&str], message: &str) {
    let output = release(checkout, arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(error.contains(message), "{arguments:?}: {error}");
}

#[test]
fn refuses_bad_input_before_it_builds() {
    let cases: [(&[&str], &str); 8] = [
        (&[], "usage: deploy/release VERSION"),
        (&["0.0.7"], "set both to 0.0.7"),
        (&[VERSION, "--fast"], "unknown flag --fast"),
        (&[VERSION, VERSION], "one argument too many"),
        (&[VERSION, "--sign", "/none"], "/none is no ECDSA P-256 key"),
        (
            &[VERSION, "--sign", &key_file("ed25519.key")],
            "openssl genpkey",
        ),
        (
            &[VERSION, "--publish"],
            "owner: https://documentation.invalid, https://repository.invalid, registry.invalid, security@contact.invalid; set",
        ),
        (
            &[VERSION, "--publish", "--registry", "registry.example/x"],
            "owner: https://documentation.invalid, https://repository.invalid, security@contact.invalid; set",
        ),
    ];
    for (arguments, message) in cases {
        check_refused(&root(), arguments, message);
    }
}

#[test]
fn publishes_no_placeholder_of_any_text_and_no_uncommitted_change() {
    let directory = tempfile::tempdir().unwrap();
    let checkout = directory.path();
    let script = "git -C \"$0\" ls-files -z Cargo.toml LICENSE deploy examples guests/sdk guests/kit 'guests/*/monitoring/*' \
        host/CHANGELOG.md | (cd \"$0\" && xargs -0 cp --parents --target-directory \"$1\") && cd \"$1\" && git init --quiet && \
        sed -i 's/\\.invalid/.example/' Cargo.toml && git add . && \
        git -c user.name=a -c user.email=a@localhost commit --quiet --message a";
    let output = Command::new("sh")
        .args(["-ec", script])
        .arg(root())
        .arg(checkout)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let check = |message: &str| check_refused(checkout, &[VERSION, "--publish"], message);
    let append = |path: &str, text: &str| {
        let path = checkout.join(path);
        let before = fs::read_to_string(&path).unwrap();
        fs::write(path, format!("{before}\n{text}\n")).unwrap();
        before
    };
    let texts = [
        "deploy/chart/templates/NOTES.txt",
        "deploy/crds/plugins.innkeeper.dev.yaml",
        "deploy/install.yaml",
        "examples/plugins/variants/gated.yaml",
        "guests/backup/monitoring/alerts.yaml",
        "guests/sdk/README.md",
    ];
    for path in texts {
        let before = append(path, "# See https://forgotten.invalid/page");
        check("placeholders of the owner: https://forgotten.invalid; set");
        fs::write(checkout.join(path), before).unwrap();
    }
    check("host/CHANGELOG.md has no section");
    append("host/CHANGELOG.md", &format!("## {VERSION}"));
    check("the checkout has changes: commit them");
}

/// Compares two runs of the script, which share one build of the program and the plugins: the archives, layouts, chart,
/// texts and checksums that it makes of them. A second build would take half an hour, and the training would
/// count a little differently; in its place, `check_program` looks for paths of this machine.
#[test]
fn two_runs_of_one_build_are_alike_and_can_be_verified() {
    if !is_full() {
        return;
    }
    let registry = Registry::start().unwrap();
    let to = registry.address();
    let key = key_file("p256.key");
    let directory = root().join("target").join(format!("release-{VERSION}"));
    let make = |settings: &str, more: &[&str]| {
        let script = format!("{WITHOUT_CARGO}; {settings}; exec \"$0\" \"$@\"");
        let mut command = Command::new("bash");
        command
            .args(["-c", &script])
            .arg(root().join("deploy/release"));
        command.args([VERSION, "--sign", &key, "--registry", to]);
        let output = command.args(more).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{error}");
        (released(&directory, to), error)
    };
    let (first, _) = make("umask 022", &[]);
    // Another user's settings.
    let other = "umask 077; export LC_ALL=C.UTF-8 TZ=Asia/Tokyo";
    let (second, log) = make(other, &["--publish"]);
    assert_eq!(first, second);
    let placeholders = "in these files: https://documentation.invalid, https://repository.invalid, security@contact.invalid\n";
    assert!(log.contains(placeholders), "{log}");
    check_files(&directory);
    check_published(to);
}

/// The checksums for a release's files without signatures: ECDSA signatures have a random part.
fn released(directory: &Path, registry: &str) -> BTreeMap<String, String> {
    let sums = fs::read_to_string(directory.join("SHA256SUMS")).unwrap();
    let mut files: BTreeMap<String, String> = sums
        .lines()
        .map(|line| line.split_once("  ").unwrap())
        .map(|(sum, path)| (path.to_owned(), sum.to_owned()))
        .collect();
    assert!(files.contains_key("oci/signatures/innkeeper/index.json"));
    assert!(files.contains_key("oci/signatures/charts/innkeeper/index.json"));
    files.retain(|path, _| !path.starts_with("oci/signatures/"));
    for plugin in ["backup", "etcd", "memcached", "wordpress"] {
        let layout = format!("oci/plugins/{plugin}");
        let read = |path: &str| -> Value {
            let path = directory.join(&layout).join(path);
            serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
        };
        let index = read("index.json");
        let manifests = index["manifests"].as_array().unwrap();
        let name = |manifest: &Value| manifest["annotations"].to_string();
        let digest = manifests
            .iter()
            .find(|manifest| name(manifest).contains(".sig"))
            .and_then(|manifest| manifest["digest"].as_str())
            .unwrap();
        let signature = format!("blobs/{}", digest.replace(':', "/"));
        let document = read(&signature)["layers"][0]["digest"]
            .clone()
            .as_str()
            .unwrap()
            .replace(':', "/");
        let repository = &read(&format!("blobs/{document}"))["critical"]["identity"];
        let reference = format!("{registry}/plugins/{plugin}");
        assert_eq!(repository["docker-reference"], *reference);
        // Both name the signature; the other blobs have their checksums in their names.
        for path in ["index.json", &signature] {
            assert!(
                files.remove(&format!("{layout}/{path}")).is_some(),
                "{path}"
            );
        }
    }
    files
}

/// Checks the files like someone who downloads them.
#[track_caller]
fn check_files(directory: &Path) {
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program)
            .args(arguments)
            .current_dir(directory)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {output:?}"
        );
        String::from_utf8(output.stdout).unwrap()
    };
    run(
        "sha256sum",
        &["--check", "--strict", "--quiet", "SHA256SUMS"],
    );
    let check = "base64 --decode SHA256SUMS.sig >SHA256SUMS.der && \
        openssl dgst -sha256 -verify \"$0\" -signature SHA256SUMS.der SHA256SUMS; rm SHA256SUMS.der";
    let verified = run("sh", &["-ec", check, &key_file("p256.pub")]);
    assert_eq!(verified, "Verified OK\n");
    let unpacked = tempfile::tempdir().unwrap();
    let archive = format!("innkeeper-{VERSION}-linux-*.tar.gz");
    let unpack = format!("tar -C \"$0\" -xzf {archive} && \"$0/innkeeper\" --version");
    let version = run("sh", &["-ec", &unpack, unpacked.path().to_str().unwrap()]);
    assert_eq!(version, format!("innkeeper {VERSION}\n"));
    check_materials(&directory.join(format!("innkeeper-{VERSION}.cdx.json")));
    let parts = [
        "NOTES.md",
        "crds/plugins.innkeeper.dev.yaml",
        "examples/memcached/01-article.yaml",
        "examples/plugins/backup.yaml",
        "examples/plugins/variants/gated.yaml",
        "install.yaml",
        "monitoring/backup/alerts.yaml",
        "monitoring/backup/kube-state-metrics.yaml",
        "monitoring/etcd/alerts.yaml",
        "monitoring/etcd/kube-state-metrics.yaml",
        &format!("innkeeper-{VERSION}.tgz"),
        &format!("innkeeper-kit-{VERSION}.crate"),
        &format!("innkeeper-sdk-{VERSION}.crate"),
        "oci/innkeeper/index.json",
        "oci/plugins/backup/index.json",
    ];
    let notes = fs::read_to_string(directory.join("NOTES.md")).unwrap();
    assert!(
        notes.ends_with(
            "Report vulnerabilities to security@contact.invalid, not in a public issue.\n"
        )
    );
    let missing: Vec<PathBuf> = parts
        .iter()
        .map(|part| directory.join(part))
        .filter(|path| !path.is_file())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    let image = Image::unpack(&directory.join("oci/innkeeper")).unwrap();
    let root = image.root().to_str().unwrap();
    let counted = run("du", &["--summarize", "--bytes", root]);
    let bytes: u64 = counted.split('\t').next().unwrap().parse().unwrap();
    assert!(bytes <= IMAGE_BYTES_MAX, "{bytes}");
    for path in [
        "usr/bin/innkeeper",
        "plugins/backup.wasm",
        "plugins/etcd.wasm",
    ] {
        check_program(&image.root().join(path));
    }
    check_counts(&image.root().join("usr/bin/innkeeper"));
}

/// Checks the bill of materials.
#[track_caller]
fn check_materials(file: &Path) {
    let materials: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(materials["bomFormat"], "CycloneDX");
    let mut components = materials["components"].as_array().unwrap().iter();
    assert!(components.any(|component| component["name"] == "wasmtime"));
}

/// Checks that a program contains no path from this machine: checkout, cargo home, toolchain.
#[track_caller]
fn check_program(program: &Path) {
    let bytes = fs::read(program).unwrap();
    let home = path_from_env("HOME").unwrap();
    let cargo_home = path_from_env("CARGO_HOME").unwrap_or_else(|_| home.join(".cargo"));
    for path in [root(), cargo_home, home.join(".rustup")] {
        let path = format!("{}/", path.display());
        let position = bytes
            .windows(path.len())
            .position(|window| window == path.as_bytes());
        let around =
            position.map(|at| String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 120)]));
        assert_eq!(around, None, "{path} in {}", program.display());
    }
}

/// Profile counts have no effect under other names than the program's: then no code counts as hot.
#[track_caller]
fn check_counts(program: &Path) {
    let sizes = Command::new("size").arg("-A").arg(program).output();
    let sizes = String::from_utf8(sizes.unwrap().stdout).unwrap();
    let hot = sizes
        .lines()
        .map(str::split_whitespace)
        .find_map(|mut words| (words.next() == Some(".text.hot")).then(|| words.next()));
    let bytes: u32 = hot.flatten().unwrap_or("0").parse().unwrap();
    // Measured: some megabytes with counts that fit, and below 200 bytes with others.
    assert!(bytes > 1 << 20, "{sizes}");
}

/// Fetches what was published with other clients.
#[track_caller]
fn check_published(registry: &str) {
    let plugin = format!("{registry}/plugins/etcd:{VERSION}");
    let key = key_file("p256.pub");
    let verify = ["verify", &plugin, "--insecure", "--key", &key];
    Client::innkeeper().unwrap().run(&verify).unwrap();
    for name in ["innkeeper", "charts/innkeeper"] {
        let reference = format!("{registry}/{name}:{VERSION}");
        let manifest = ["manifest", &reference, "--insecure"];
        let manifest = Client::crane().unwrap().run(&manifest).unwrap();
        assert!(manifest.contains("layers"), "{manifest}");
        check_cosign(&cosign().0, &reference, &key, true);
    }
}

/// Writes a layerless image as an OCI layout.
fn write_image(layout: &Path) {
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let write = |kind: &str, content: &Value| {
        let bytes = content.to_string().into_bytes();
        let digest = Digest::hash(&bytes);
        fs::write(blobs.join(digest.to_hex()), &bytes).unwrap();
        let kind = format!("application/vnd.oci.image.{kind}.v1+json");
        json!({"mediaType": kind, "digest": digest.to_string(), "size": bytes.len()})
    };
    let config = json!({
        "architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []},
    });
    let config = write("config", &config);
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config, "layers": [],
    });
    let manifest = write("manifest", &manifest);
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(layout.join("index.json"), index.to_string()).unwrap();
    let version = json!({"imageLayoutVersion": "1.0.0"});
    fs::write(layout.join("oci-layout"), version.to_string()).unwrap();
}

/// Only the signing part of a release, with a small image instead of the host's.
#[test]
fn image_chart_and_provenance_are_signed_for_cosign() {
    if !is_full() {
        return;
    }
    let registry = Registry::start().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    write_image(&out.join("oci/innkeeper"));
    // Without set --, the script would also read these arguments.
    let script = "settings=(\"version=$1\" \"registry=$2\" \"key=$3\" \"out=$4\" \"work=$5\"); set --; source deploy/release; \
        declare \"${settings[@]}\"; commit=$(git rev-parse HEAD); \
        \"$INNKEEPER_HELM\" package deploy/chart --destination \"$out\"; \
        image_and_chart \"$registry\" --insecure; image_and_chart \"$registry\" --insecure; sums; provenance";
    let mut command = Command::new("bash");
    command
        .args(["-ec", script, "bash"])
        .args([VERSION, registry.address(), &key_file("p256.key")])
        .args([&*out, directory.path()])
        .current_dir(root());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");

    let (cosign, _) = cosign();
    for name in ["innkeeper", "charts/innkeeper"] {
        let reference = format!("{}/{name}:{VERSION}", registry.address());
        check_cosign(&cosign, &reference, &key_file("p256.pub"), true);
        check_cosign(&cosign, &reference, &key_file("other.pub"), false);
        // Pushing the same files again gives the same manifest, which has one signature.
        let ls = ["ls", "--insecure", reference.rsplit_once(':').unwrap().0];
        let tags = Client::crane().unwrap().run(&ls).unwrap();
        assert_eq!(tags.lines().count(), 2, "{tags}");
    }
    check_provenance(&cosign, &out);
}

/// Checks that a release file has a provenance, and another file has none.
#[track_caller]
fn check_provenance(cosign: &Client, out: &Path) {
    let attestation = out.join(format!("innkeeper-{VERSION}.intoto.jsonl"));
    let envelope: Value = serde_json::from_slice(&fs::read(&attestation).unwrap()).unwrap();
    let payload = STANDARD.decode(envelope["payload"].as_str().unwrap());
    let statement: Value = serde_json::from_slice(&payload.unwrap()).unwrap();
    let definition = &statement["predicate"]["buildDefinition"];
    let commit = &definition["resolvedDependencies"][0]["digest"]["gitCommit"];
    assert_eq!(commit.as_str().unwrap().len(), 40, "{statement}");
    assert_eq!(definition["externalParameters"]["version"], VERSION);
    let chart = out.join(format!("innkeeper-{VERSION}.tgz"));
    let other = cosign.put("other", b"other").unwrap();
    for (key, file, is_valid) in [
        ("p256.pub", chart.to_str().unwrap(), true),
        ("other.pub", chart.to_str().unwrap(), false),
        ("p256.pub", &*other, false),
    ] {
        let verify = [
            "verify-blob-attestation",
            "--key",
            &key_file(key),
            "--insecure-ignore-tlog=true",
            "--type=slsaprovenance1",
            "--signature",
            attestation.to_str().unwrap(),
            file,
        ];
        let output = cosign.output(&verify).unwrap();
        assert_eq!(output.status.success(), is_valid, "{file}: {output:?}");
    }
}
