//! `deploy/release`: what it refuses, and what a release has. Only `tests/full` makes a release, which links for minutes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use innkeeper_tests::{
    manifest::root,
    pod::Image,
    process::is_full,
    registry::{Client, Registry},
};

use crate::cosign::fixture;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The largest allowed size of the unpacked image of a release.
const IMAGE_BYTES_MAX: u64 = 60_000_000;

fn release(checkout: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(checkout.join("deploy/release"));
    command.args(arguments).output().unwrap()
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
            &[VERSION, "--sign", &fixture("ed25519.key")],
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
    let checkout = tempfile::tempdir().unwrap();
    let checkout = checkout.path();
    let script = "git -C \"$0\" ls-files -z Cargo.toml LICENSE deploy examples guests/sdk 'guests/*/monitoring/*' \
        host/CHANGELOG.md | (cd \"$0\" && xargs -0 cp --parents --target-directory \"$1\") && cd \"$1\" && git init --quiet && \
        sed -i 's/\\.invalid/.example/' Cargo.toml && git add . && \
        git -c user.name=a -c user.email=a@localhost commit --quiet --message a";
    let mut command = Command::new("sh");
    command.args(["-ec", script]).arg(root()).arg(checkout);
    let output = command.output().unwrap();
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

#[test]
fn two_releases_are_alike_and_can_be_verified() {
    if !is_full() {
        return;
    }
    let registry = Registry::start().unwrap();
    let key = fixture("p256.key");
    let make = |more: &[&str]| {
        let output = release(&root(), &[&[VERSION, "--sign", &key], more].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        let directory = root().join("target").join(format!("release-{VERSION}"));
        let sums = fs::read_to_string(directory.join("SHA256SUMS")).unwrap();
        (directory, sums)
    };
    let (_, first) = make(&[]);
    let to = registry.address();
    let (directory, second) = make(&["--publish", "--registry", to]);
    // The signatures of ECDSA have a random part, and the manifests name the registry.
    let unsigned = |sums: &str| {
        let lines = sums.lines();
        let lines =
            lines.filter(|it| !it.contains(" oci/plugins/") && !it.ends_with(" install.yaml"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(unsigned(&first), unsigned(&second));
    check_files(&directory);
    check_published(to);
}

/// Checks the files as those who download them would.
#[track_caller]
fn check_files(directory: &Path) {
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        let output = command.args(arguments).current_dir(directory).output();
        let output = output.unwrap();
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
    let verified = run("sh", &["-ec", check, &fixture("p256.pub")]);
    assert_eq!(verified, "Verified OK\n");
    let unpacked = tempfile::tempdir().unwrap();
    let archive = format!("innkeeper-{VERSION}-linux-*.tar.gz");
    let unpack = format!("tar -C \"$0\" -xzf {archive} && \"$0/innkeeper\" --version");
    let version = run("sh", &["-ec", &unpack, unpacked.path().to_str().unwrap()]);
    assert_eq!(version, format!("innkeeper {VERSION}\n"));
    let materials = fs::read_to_string(directory.join(format!("innkeeper-{VERSION}.cdx.json")));
    let materials: serde_json::Value = serde_json::from_str(&materials.unwrap()).unwrap();
    assert_eq!(materials["bomFormat"], "CycloneDX");
    let components = materials["components"].as_array().unwrap();
    assert!(components.iter().any(|it| it["name"] == "wasmtime"));
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
        &format!("innkeeper-sdk-{VERSION}.crate"),
        "oci/innkeeper/index.json",
        "oci/plugins/backup/index.json",
    ];
    let missing: Vec<PathBuf> = parts.iter().map(|it| directory.join(it)).collect();
    let missing: Vec<_> = missing.iter().filter(|it| !it.is_file()).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let image = Image::unpack(&directory.join("oci/innkeeper")).unwrap();
    let root = image.root().to_str().unwrap();
    let counted = run("du", &["--summarize", "--bytes", root]);
    let bytes: u64 = counted.split('\t').next().unwrap().parse().unwrap();
    assert!(bytes <= IMAGE_BYTES_MAX, "{bytes}");
}

/// Fetches what was published with other clients.
#[track_caller]
fn check_published(registry: &str) {
    let plugin = format!("{registry}/plugins/etcd:{VERSION}");
    let key = fixture("p256.pub");
    let verify = ["verify", &plugin, "--insecure", "--key", &key];
    Client::innkeeper().unwrap().run(&verify).unwrap();
    for name in ["innkeeper", "charts/innkeeper"] {
        let reference = format!("{registry}/{name}:{VERSION}");
        let manifest = ["manifest", &reference, "--insecure"];
        let manifest = Client::crane().unwrap().run(&manifest).unwrap();
        assert!(manifest.contains("layers"), "{manifest}");
    }
}
