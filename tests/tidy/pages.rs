//! The Markdown pages: links lead to existing files and headings.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_tests::{
    manifest::root,
    pages::{Block, Page},
};

use super::{
    assert_none,
    files::{read, tracked},
};

/// Links to items are checked by rustdoc.
const OF_RUSTDOC: &str = "host/ARCHITECTURE.md";

fn pages() -> Vec<Page> {
    let pages = Page::all().expect("the pages can be read");
    assert!(pages.len() > 30, "the test looks in the wrong place");
    pages
}

/// Returns a path without `..` and `.`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let pages = pages();
    let by_path: BTreeMap<&str, &Page> = pages.iter().map(|page| (&*page.path, page)).collect();
    let mut broken = Vec::new();
    for page in pages.iter().filter(|page| page.path != OF_RUSTDOC) {
        let directory = page
            .path
            .rsplit_once('/')
            .map_or("", |(directory, _)| directory);
        let links = page.links().into_iter();
        for link in links.filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() {
                page.path.clone()
            } else {
                normal(&format!("{directory}/{file}"))
            };
            let has_anchor = || {
                by_path
                    .get(&*target)
                    .is_some_and(|page| page.anchors().iter().any(|other| other == anchor))
            };
            if !root().join(&target).exists() || !anchor.is_empty() && !has_anchor() {
                broken.push(format!("{} in {}", link, page.path));
            }
        }
    }
    assert_none("broken links", broken);
}

#[test]
fn every_alert_has_a_runbook() {
    let pages = pages();
    // The path to the rules, and the page with their runbooks.
    let rules = [
        ("deploy/chart/files/alerts.yaml", "deploy/docs/runbooks.md"),
        (
            "guests/etcd/monitoring/alerts.yaml",
            "guests/etcd/README.md",
        ),
        (
            "guests/backup/monitoring/alerts.yaml",
            "guests/backup/README.md",
        ),
    ];
    let mut missing = Vec::new();
    for (path, address) in rules {
        let anchors = pages
            .iter()
            .find(|page| page.path == address)
            .map(Page::anchors)
            .unwrap_or_default();
        let alerts = read(path);
        let names: Vec<String> = alerts
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- alert: "))
            .map(str::to_lowercase)
            .collect();
        assert!(names.len() > 5, "{names:?}");
        missing.extend(names.into_iter().filter(|name| {
            let url = format!("https://documentation.invalid/{address}#{name}\n");
            !anchors.contains(name) || !alerts.contains(&url)
        }));
    }
    assert_none("an alert without a runbook and its address", missing);
}

#[test]
fn every_picture_shows_its_source() {
    let paths = tracked();
    let pictures: Vec<&str> = paths
        .iter()
        .filter_map(|path| path.strip_suffix(".svg"))
        .collect();
    assert!(pictures.len() > 3, "{pictures:?}");
    let mut differences = Vec::new();
    for picture in pictures {
        let source = read(&format!("{picture}.dot"));
        let drawn = texts(&read(&format!("{picture}.svg")));
        let labels = labels(&source);
        differences.extend(
            labels
                .iter()
                .filter(|label| !drawn.contains(*label))
                .map(|label| format!("{picture}.svg lacks {label:?}: render it again")),
        );
        // A node without a label shows the node name.
        let foreign = drawn
            .iter()
            .filter(|text| !labels.contains(*text) && !source.contains(&***text));
        differences.extend(foreign.map(|text| format!("{picture}.dot lacks {text:?}")));
    }
    assert_none("a picture that differs from its source", differences);
}

/// All label lines in a graph.
fn labels(graph: &str) -> BTreeSet<String> {
    graph
        .split("label=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .flat_map(|label| label.split("\\n"))
        .map(str::to_owned)
        .collect()
}

/// The texts in a picture.
fn texts(picture: &str) -> BTreeSet<String> {
    picture
        .split("<text")
        .skip(1)
        .filter_map(|rest| rest.split_once('>')?.1.split('<').next())
        .map(|text| {
            text.replace("&#45;", "-")
                .replace("&gt;", ">")
                .replace("&lt;", "<")
                .replace("&amp;", "&")
        })
        .collect()
}

#[test]
fn finds_blocks_links_and_anchors() {
    let page = Page {
        path: "a.md".to_owned(),
        text: "# The `x` of [y](z.md#w)!\n\n<!-- not run: slow -->\n```bash\na\n```\n```sh\nb\n```\n```rust\n[no](link)\n```\n".to_owned(),
    };
    let block = |commands: &str, not_run: Option<&str>| Block {
        commands: commands.to_owned(),
        not_run: not_run.map(str::to_owned),
    };
    assert_eq!(
        page.blocks(),
        [block("a\n", Some("slow")), block("b\n", None)]
    );
    assert_eq!(page.links(), ["z.md#w"]);
    assert_eq!(page.anchors(), ["the-x-of-yzmdw"]);
    assert_eq!(normal("deploy/docs/../../host/./x"), "host/x");
}
