//! The output of `dev`: progress and a live table on a terminal, else a plain line per change.

use std::{
    collections::BTreeSet,
    io::{self, IsTerminal, Write, stdout},
    path::Path,
    time::{Duration, Instant},
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use innkeeper_command::{Exit, Failure, OrFail as _, plain};
use innkeeper_model::yaml;
use serde_json::{Map, Value, json};

use super::{quoted, table::Row};

/// The interval between two frames of a spinner.
const TICK: Duration = Duration::from_millis(100);

/// The failure to show the progress.
const PRINT: &str = "failed to write to standard output";

/// The display on standard output, with or without a terminal.
pub(super) struct Show {
    terminal: Option<Terminal>,
    shown: Vec<Row>,
    /// The shown faults, each of which a plugin may repeat in every pass.
    faults: BTreeSet<String>,
}

struct Terminal {
    bars: MultiProgress,
    lines: Vec<ProgressBar>,
}

/// A running step of the start.
pub(super) struct ProgressStep {
    name: &'static str,
    began: Instant,
    bar: Option<ProgressBar>,
}

impl Show {
    pub(super) fn start() -> Self {
        let terminal = stdout().is_terminal().then(|| Terminal {
            bars: MultiProgress::with_draw_target(indicatif::ProgressDrawTarget::stdout()),
            lines: Vec::new(),
        });
        Self {
            terminal,
            shown: Vec::new(),
            faults: BTreeSet::new(),
        }
    }

    /// Shows the begin of a step.
    pub(super) fn step(&self, name: &'static str) -> Result<ProgressStep, Failure> {
        let bar = self.terminal.as_ref().map(|terminal| {
            let bar = terminal.bars.add(ProgressBar::new_spinner());
            bar.set_message(name);
            bar.enable_steady_tick(TICK);
            bar
        });
        if bar.is_none() {
            print(format_args!("{name} ..."))?;
        }
        Ok(ProgressStep {
            name,
            began: Instant::now(),
            bar,
        })
    }

    /// Shows the end of a step and its duration.
    pub(super) fn done(&self, step: ProgressStep) -> Result<(), Failure> {
        let ProgressStep { name, began, bar } = step;
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        self.say(&format!("{name}: {:.1} s", began.elapsed().as_secs_f64()))
    }

    /// Shows the grants of a plugin that got everything that it asks for.
    pub(super) fn grants(&self, plugin: &str, grants: &Map<String, Value>) -> Result<(), Failure> {
        self.say(&format!("plugin {plugin} is granted all that it asks for:"))?;
        let text = yaml::write(&[json!(grants)]).unwrap_or_default();
        text.lines()
            .try_for_each(|line| self.say(&format!("  {line}")))
    }

    /// Shows the parents if they differ from the last call: the whole table on a terminal, else the changed rows.
    pub(super) fn table(&mut self, rows: &[Row]) -> Result<(), Failure> {
        if self.shown == rows {
            return Ok(());
        }
        let changed: Vec<Row> = rows
            .iter()
            .filter(|row| !self.shown.contains(row))
            .cloned()
            .collect();
        self.shown = rows.to_vec();
        match &mut self.terminal {
            Some(terminal) => terminal.draw(rows),
            None => changed
                .iter()
                .try_for_each(|row| print(format_args!("{row}")))?,
        }
        Ok(())
    }

    /// Shows the faults of plugins that are new.
    pub(super) fn faults(&mut self, faults: Vec<String>) -> Result<(), Failure> {
        // A fault that ended is shown again when it comes back.
        self.faults.retain(|known| faults.contains(known));
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

    /// Prints commands that the user can try next.
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

    /// Ends the live table; its last state stays on the terminal.
    pub(super) fn clear(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            for line in terminal.lines.drain(..) {
                line.finish();
            }
        }
    }

    pub(super) fn say(&self, line: &str) -> Result<(), Failure> {
        match &self.terminal {
            Some(terminal) => {
                let printed = terminal.bars.println(plain(line));
                printed.or_fail(Exit::Failure, PRINT)
            }
            None => print(format_args!("{line}")),
        }
    }
}

impl Terminal {
    fn draw(&mut self, rows: &[Row]) {
        let header = ["PARENT", "READY", "SYNCED", "CHILDREN", ""].map(str::to_owned);
        let cells: Vec<[String; 5]> = std::iter::once(header)
            .chain(rows.iter().map(Row::cells))
            .collect();
        let width = |column: usize| {
            let widths = cells.iter().map(|row| row[column].chars().count());
            widths.max().unwrap_or_default()
        };
        let widths = [width(0), width(1), width(2), width(3)];
        while self.lines.len() > cells.len() {
            if let Some(line) = self.lines.pop() {
                line.finish_and_clear();
            }
        }
        for (index, [parent, ready, synced, children, message]) in cells.iter().enumerate() {
            if index == self.lines.len() {
                let line = self.bars.add(ProgressBar::new_spinner());
                let style = ProgressStyle::with_template("{wide_msg}");
                line.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
                self.lines.push(line);
            }
            let [a, b, c, d] = widths;
            self.lines[index].set_message(format!(
                "{parent:a$}  {ready:b$}  {synced:c$}  {children:d$}  {message}"
            ));
            self.lines[index].tick();
        }
    }
}

fn print(line: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    write_line(&mut stdout().lock(), &line.to_string()).or_fail(Exit::Failure, PRINT)
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
