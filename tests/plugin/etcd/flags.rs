//! Compares the flags that the plugin accepts with each etcd version's flags.

use std::process::Command;

use innkeeper_tests::process::is_full;
use serde_json::json;

use super::{V34, V35, V36, V37, spec, world::World};

const README: &str = include_str!("../../../guests/etcd/README.md");

/// For each flag, one of these has the right form.
const VALUES: [&str; 11] = [
    "true", "1", "1s", "simple", "periodic", "map", "json", "warn", "zap", "basic", "TLS1.3",
];

/// The flags in the README's list of accepted flags.
fn names() -> Vec<&'static str> {
    README
        .split("\n## Flags\n")
        .nth(1)
        .unwrap()
        .split("\n\n")
        .find(|part| part.starts_with("- numbers"))
        .unwrap()
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| word.contains('-') || *word == "cors")
        .collect()
}

/// The plugin's objection to a flag with a well-formed value; empty if there is none.
fn problem(world: &mut World, image: &str, flag: &str) -> (&'static str, String) {
    for value in VALUES {
        let mut with = spec(1, image);
        with["options"] = json!({ flag: value });
        world.edit(with);
        world.children.clear();
        world.pass();
        let (.., problem) = world.condition("Synced");
        // The number itself does not matter: etcd reads the next flag before it looks at it.
        if problem.contains(" must be at least ") {
            return (value, String::new());
        }
        if !problem.contains(": write ") {
            return (value, problem.to_owned());
        }
    }
    unreachable!("no value has the form of {flag}")
}

#[test]
fn each_version_has_the_flags_that_the_plugin_accepts() {
    let images = if is_full() {
        vec![V34, V35, V36, V37]
    } else {
        vec![V36]
    };
    let plain = names();
    assert!(plain.len() > 50, "{plain:?}");
    let experimental = plain.iter().map(|name| format!("experimental-{name}"));
    // The CRD rejects it as a bootstrap flag, and no version has it without the prefix.
    let flags: Vec<String> = plain
        .iter()
        .filter(|name| **name != "initial-corrupt-check")
        .map(|name| (*name).to_owned())
        .chain(experimental)
        .collect();
    for image in images {
        let mut world = World::new(spec(1, image));
        for flag in &flags {
            let (value, problem) = problem(&mut world, image, flag);
            let etcd = world.images.programs(image).join("etcd");
            let mut command = Command::new(etcd);
            // etcd exits at the first flag that it does not know.
            let output = command
                .args([&*format!("--{flag}={value}"), "--unknown"])
                .current_dir(world.directory.path())
                .output()
                .unwrap();
            let text =
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            let knows = !text.contains(&format!("flag provided but not defined: -{flag}\n"));
            assert_eq!(problem.is_empty(), knows, "{image} {flag} {problem} {text}");
        }
    }
}
