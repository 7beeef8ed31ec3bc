//! The repository's Markdown pages: their command blocks and links.

use std::{fs, process::Command};

use anyhow::{Result, ensure};

use crate::manifest::root;

/// The start of the line before a block that no test runs; the reason follows.
pub const NOT_RUN: &str = "<!-- not run: ";

/// A Markdown page.
pub struct Page {
    /// The path below the root.
    pub path: String,
    /// The text.
    pub text: String,
}

/// A block of shell commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The commands.
    pub commands: String,
    /// Why no test runs it.
    pub not_run: Option<String>,
}

/// A fenced block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    /// The language and attributes after the opening fence.
    pub language: String,
    /// The lines.
    pub text: String,
    /// The line before.
    before: String,
}

impl Fence {
    /// Returns true if the block has shell commands.
    pub fn is_shell(&self) -> bool {
        ["bash", "sh"].contains(&&*self.language)
    }
}

impl Page {
    /// Returns all pages that are tracked, or new and not ignored.
    pub fn all() -> Result<Vec<Self>> {
        let arguments = ["ls-files", "--cached", "--others", "--exclude-standard"];
        let output = Command::new("git")
            .args(arguments)
            .arg("*.md")
            .current_dir(root())
            .output()?;
        ensure!(output.status.success(), "{output:?}");
        let paths = String::from_utf8(output.stdout)?;
        paths
            .lines()
            .filter(|path| root().join(path).exists())
            .map(|path| {
                let text = fs::read_to_string(root().join(path))?;
                Ok(Self {
                    path: path.to_owned(),
                    text,
                })
            })
            .collect()
    }

    /// Returns the fenced blocks in order.
    pub fn fences(&self) -> Vec<Fence> {
        let mut blocks = Vec::new();
        let (mut before, mut fence): (&str, Option<Fence>) = ("", None);
        for line in self.text.lines() {
            match &mut fence {
                Some(open) if line != "```" => {
                    open.text.push_str(line);
                    open.text.push('\n');
                }
                Some(_) => blocks.extend(fence.take()),
                None => {
                    fence = line.strip_prefix("```").map(|language| Fence {
                        language: language.to_owned(),
                        before: before.to_owned(),
                        ..Fence::default()
                    });
                }
            }
            before = line;
        }
        blocks
    }

    /// Returns the shell blocks in order.
    pub fn blocks(&self) -> Vec<Block> {
        let block = |fence: Fence| {
            let reason = fence
                .before
                .strip_prefix(NOT_RUN)
                .and_then(|text| text.strip_suffix(" -->"));
            Block {
                not_run: reason.map(str::to_owned),
                commands: fence.text,
            }
        };
        self.fences()
            .into_iter()
            .filter(Fence::is_shell)
            .map(block)
            .collect()
    }

    /// Returns the lines outside fenced blocks.
    pub fn prose(&self) -> impl Iterator<Item = &str> {
        let mut is_fenced = false;
        self.text.lines().filter(move |line| {
            let is_fence = line.trim_start().starts_with("```");
            is_fenced ^= is_fence;
            !is_fenced && !is_fence
        })
    }

    /// Returns the link targets, including images.
    pub fn links(&self) -> Vec<String> {
        self.prose()
            .flat_map(|line| line.split("](").skip(1))
            .filter_map(|rest| rest.split_once(')'))
            .map(|(target, _)| target.to_owned())
            .collect()
    }

    /// Returns the heading anchors as GitHub generates them.
    pub fn anchors(&self) -> Vec<String> {
        let headings = self.prose().filter_map(|line| {
            let heading = line.trim_start_matches('#');
            (heading.len() < line.len()).then(|| heading.trim().to_lowercase())
        });
        let anchor = |heading: String| {
            heading
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
                .collect::<String>()
                .replace(' ', "-")
        };
        headings.map(anchor).collect()
    }
}
