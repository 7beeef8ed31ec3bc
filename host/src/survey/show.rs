//! A survey as tables for people.

use innkeeper_command::{Output, plain};
use innkeeper_server::admin::{FaultState, ParentState};

use super::{OfPlugin, PluginRow, Survey};

/// The gap between two columns.
const GAP: &str = "  ";

/// The text of an empty cell.
const NOTHING: &str = "-";

/// Returns the output of `status`.
pub(super) fn status(survey: &Survey) -> Output {
    let mut out = Output::from_line(heading(survey));
    for problem in &survey.problems {
        out.line(format!("Problem: {problem}"));
    }
    if survey.plugins.is_empty() {
        out.line("No plugin is active.");
        return out;
    }
    out.line("");
    out.append(&plugins(&survey.plugins));
    out.line("");
    let total: usize = survey.plugins.iter().map(|plugin| plugin.parents).sum();
    let not_ready = survey.parents.len() + survey.parents_omitted;
    if not_ready == 0 {
        match total {
            0 => out.line("There are no parents."),
            1 => out.line("The only parent is Ready."),
            many => out.line(format!("All {many} parents are Ready.")),
        }
    } else {
        out.line(format!("{not_ready} of {total} parents are not Ready:"));
        out.append(&parents(&survey.parents));
        if survey.parents_omitted > 0 {
            out.line(format!("and {} more", survey.parents_omitted));
        }
    }
    if !survey.faults.is_empty() {
        out.line("");
        out.line("Last faults:");
        out.append(&faults(&survey.faults));
    }
    out
}

fn heading(survey: &Survey) -> String {
    let does = match &survey.host {
        None => "",
        Some(host) if host.stands_by => " stands by: another host writes",
        Some(host) if !host.started => " is starting",
        Some(_) => " is active",
    };
    let left_out = match survey
        .host
        .as_ref()
        .map_or(0, |host| host.plugins_not_served)
    {
        0 => String::new(),
        1 => "; 1 plugin is not active, see the log of the host".to_owned(),
        many => format!("; {many} plugins are not active, see the log of the host"),
    };
    format!("{}{does}{left_out}", survey.from)
}

fn plugins(plugins: &[PluginRow]) -> Output {
    let rows = plugins.iter().map(|plugin| {
        [
            plugin.name.clone(),
            plugin.serving.clone(),
            plugin.parents.to_string(),
            plugin.ready.to_string(),
            plugin
                .faults
                .map(|faults| faults.to_string())
                .unwrap_or_default(),
            plugin
                .revision
                .trim_start_matches("sha256:")
                .chars()
                .take(16)
                .collect(),
            why(&plugin.reason, &plugin.message),
        ]
    });
    table(
        [
            "PLUGIN", "SERVING", "PARENTS", "READY", "FAULTS", "REVISION", "WHY",
        ],
        rows,
    )
}

fn parents(parents: &[OfPlugin<ParentState>]) -> Output {
    let rows = parents.iter().map(
        |OfPlugin {
             plugin,
             state: parent,
         }| {
            let place = match &parent.namespace {
                Some(namespace) => format!("{namespace}/{}", parent.name),
                None => parent.name.clone(),
            };
            [
                format!("{} {place}", parent.kind),
                plugin.clone(),
                parent.ready.clone(),
                parent.synced.clone(),
                parent
                    .last_pass
                    .as_ref()
                    .map(|pass| format!("{}, {} s ago", pass.outcome, pass.seconds_ago))
                    .unwrap_or_default(),
                why(&parent.reason, &parent.message),
            ]
        },
    );
    table(
        ["PARENT", "PLUGIN", "READY", "SYNCED", "LAST PASS", "WHY"],
        rows,
    )
}

fn faults(faults: &[OfPlugin<FaultState>]) -> Output {
    let rows = faults.iter().map(
        |OfPlugin {
             plugin,
             state: fault,
         }| {
            [
                fault.time.clone(),
                plugin.clone(),
                fault.parent.clone(),
                why(&fault.reason, &fault.message),
            ]
        },
    );
    table(["TIME", "PLUGIN", "PARENT", "FAULT"], rows)
}

fn why(reason: &str, message: &str) -> String {
    match (reason, message) {
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

/// Returns rows below their headings, without empty columns.
pub(crate) fn table<const N: usize>(
    headings: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> Output {
    let rows: Vec<[String; N]> = rows
        .map(|row| row.map(|cell| plain(&cell).into_owned()))
        .collect();
    let columns: Vec<usize> = (0..N)
        .filter(|column| rows.iter().any(|row| !row[*column].is_empty()))
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| shown(&row[column]).chars().count());
        cells
            .chain([headings[column].len()])
            .max()
            .unwrap_or_default()
    };
    let mut out = Output::default();
    let mut push = |cells: [&str; N]| {
        let padded: Vec<String> = columns
            .iter()
            .map(|column| format!("{:<1$}", cells[*column], width(*column)))
            .collect();
        out.line(padded.join(GAP).trim_end());
    };
    push(headings);
    for row in &rows {
        push(row.each_ref().map(|cell| shown(cell)));
    }
    out
}

fn shown(cell: &str) -> &str {
    if cell.is_empty() { NOTHING } else { cell }
}
