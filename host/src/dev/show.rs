//! The output of `dev`: one line per step and change.

use std::{
    collections::BTreeSet,
    io::{self, Stdout, Write, stdout},
    path::Path,
    time::Instant,
};

use innkeeper_command::{Exit, Failure, OrFail as _, plain};
use innkeeper_model::yaml;
use serde_json::{Map, Value, json};

use super::{parents::Row, quoted};

const PRINT: &str = "failed to write to standard output";

/// Prints each change once.
pub(super) struct Show {
    out: Stdout,
    shown: Vec<Row>,
    /// The current faults, which a plugin may repeat in every pass.
    faults: BTreeSet<String>,
}

/// A running step during the start.
pub(super) struct ProgressStep {
    name: &'static str,
    began: Instant,
}

impl Show {
    /// Prints to standard output.
    pub(super) fn new() -> Self {
        Self {
            out: stdout(),
            shown: Vec::new(),
            faults: BTreeSet::new(),
        }
    }

    /// Shows a step's start.
    pub(super) fn step(&self, name: &'static str) -> Result<ProgressStep, Failure> {
        self.say(&format!("{name} ..."))?;
        Ok(ProgressStep {
            name,
            began: Instant::now(),
        })
    }

    /// Shows a step's end and duration.
    pub(super) fn done(&self, step: ProgressStep) -> Result<(), Failure> {
        let ProgressStep { name, began } = step;
        self.say(&format!("{name}: {:.1} s", began.elapsed().as_secs_f64()))
    }

    /// Shows the grants of a plugin that received all requested grants.
    pub(super) fn grants(&self, plugin: &str, grants: &Map<String, Value>) -> Result<(), Failure> {
        self.say(&format!("plugin {plugin} has all requested grants:"))?;
        yaml::write(&[json!(grants)])
            .unwrap_or_default()
            .lines()
            .try_for_each(|line| self.say(&format!("  {line}")))
    }

    /// Shows parents that differ from the last call.
    pub(super) fn parents(&mut self, rows: &[Row]) -> Result<(), Failure> {
        for row in rows.iter().filter(|row| !self.shown.contains(row)) {
            self.say(&row.to_string())?;
        }
        self.shown = rows.to_vec();
        Ok(())
    }

    /// Shows new faults.
    pub(super) fn faults(&mut self, faults: Vec<String>) -> Result<(), Failure> {
        // A fault that returns is shown again.
        self.faults.retain(|fault| faults.contains(fault));
        for fault in faults {
            if !self.faults.contains(&fault) {
                self.say(&fault)?;
                self.faults.insert(fault);
            }
        }
        Ok(())
    }

    /// Reports that all parents are Ready.
    pub(super) fn all_ready(&mut self, rows: &[Row]) -> Result<(), Failure> {
        self.say(&match rows.len() {
            0 => "no parents yet".to_owned(),
            1 => "1 parent is Ready".to_owned(),
            many => format!("all {many} parents are Ready"),
        })
    }

    /// Prints commands to try next.
    pub(super) fn usage(
        &self,
        kubeconfig: Option<&Path>,
        control_plane: Option<&Path>,
        rows: &[Row],
    ) -> Result<(), Failure> {
        let kubectl = match control_plane {
            Some(program) => format!("{} kubectl", quoted(program)),
            None => "kubectl".to_owned(),
        };
        let mut lines = vec![
            String::new(),
            "Try, in another terminal:".to_owned(),
            String::new(),
        ];
        if let Some(kubeconfig) = kubeconfig {
            lines.push(format!("  export KUBECONFIG={}", quoted(kubeconfig)));
        }
        match rows.first() {
            Some(row) => {
                let name = &row.parent.name;
                let scope = match &row.parent.namespace {
                    Some(namespace) => format!(" -n {namespace}"),
                    None => String::new(),
                };
                let resource = &row.resource;
                lines.push(format!("  {kubectl}{scope} get {resource}"));
                lines.push(format!("  {kubectl}{scope} edit {resource} {name}"));
                lines.push(format!("  {kubectl}{scope} get all"));
            }
            None => lines.push(format!("  {kubectl} get crd")),
        }
        lines.push(String::new());
        lines.push("Press Ctrl-C to stop.".to_owned());
        lines.iter().try_for_each(|line| self.say(line))
    }

    pub(super) fn say(&self, line: &str) -> Result<(), Failure> {
        write_line(&mut self.out.lock(), line).or_fail(Exit::Failure, PRINT)
    }
}

fn write_line(out: &mut impl Write, line: &str) -> io::Result<()> {
    writeln!(out, "{}", plain(line))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_escape_sequences() {
        let mut out = Vec::new();
        write_line(&mut out, "failed: \u{1b}[2Jgone\nnext").unwrap();
        assert_eq!(out, b"failed: [2Jgone next\n");
    }
}
