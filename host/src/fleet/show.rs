//! Shows a plan as text or Markdown, deletes first.

use std::fmt::Write as _;

use innkeeper_command::{Failure, Output};
use innkeeper_model::ObjectId;
use innkeeper_plugin_controller::{FleetPlan, Forecast, ParentPlan, Writes};
use innkeeper_reconcile::ParentOutcome;

use crate::{config::PlanFormat, table::table};

/// The maximum number of deletes and faults in text; JSON has all.
const NAMED_MAX: usize = 20;

const TAKES_ANY_TEXT: &str = "a String takes any text";

pub(super) fn all(
    plan: &FleetPlan,
    format: PlanFormat,
    has_colours: bool,
) -> Result<Output, Failure> {
    match format {
        PlanFormat::Text => Ok(text(plan, has_colours)),
        PlanFormat::Json => Output::json(&plan.json()),
        PlanFormat::Markdown => Ok(markdown(plan)),
    }
}

fn text(plan: &FleetPlan, has_colours: bool) -> Output {
    let push = |out: &mut Output, text: &str, is_delete: bool| {
        if is_delete && has_colours {
            out.red_line(text);
        } else {
            out.line(text);
        }
    };
    let mut out = Output::from_line(heading(plan));
    out.line("");
    let entry = |out: &mut Output, text: &str, is_delete| {
        push(out, &format!("  {text}"), is_delete);
    };
    add_findings(&mut out, plan, "  ", &push, &entry);
    if !plan.forecast.kinds.is_empty() {
        let rows = plan.forecast.kinds.iter().map(|(kind, writes)| {
            let [creates, updates, deletes] = cells(*writes);
            [kind.to_string(), deletes, creates, updates]
        });
        out.append(&table(["CHILDREN", "DELETES", "CREATES", "UPDATES"], rows));
        out.line("");
    }
    out.line(format!("{}.", summary(&plan.forecast)));
    for (parent, differences) in requested(plan) {
        out.line("");
        out.line(parent.to_string());
        for difference in differences {
            out.line(format!("  {difference}"));
        }
    }
    out
}

fn heading(plan: &FleetPlan) -> String {
    let FleetPlan {
        plugin,
        revision,
        against,
        ..
    } = plan;
    let against = against.as_ref().map_or_else(
        || "the live objects".to_owned(),
        |against| format!("revision {}", short(against)),
    );
    format!(
        "Plan of plugin {plugin}, revision {} against {against}",
        short(revision)
    )
}

/// Returns the totals as a sentence without a full stop.
fn summary(forecast: &Forecast) -> String {
    let Writes {
        creates,
        updates,
        deletes,
    } = forecast.total();
    let mut text = format!(
        "{}: unchanged {}, deletes {deletes}, creates {creates}, updates {updates}, changed status {}, faults {}",
        count(forecast.parents, "parent", "parents"),
        forecast.unchanged,
        forecast.statuses,
        forecast.faults,
    );
    for (number, what) in [
        (
            forecast.faults_known,
            "faults that the other plugin has too",
        ),
        (
            forecast.skipped,
            "without a pass (paused, not selected or deleted)",
        ),
    ] {
        if number > 0 {
            write!(text, ", {what} {number}").expect(TAKES_ANY_TEXT);
        }
    }
    text
}

/// Adds deletes and new faults. `title` and `entry` add lines; a line about more entries begins with `start`.
fn add_findings(
    out: &mut Output,
    plan: &FleetPlan,
    start: &str,
    title: &dyn Fn(&mut Output, &str, bool),
    entry: &dyn Fn(&mut Output, &str, bool),
) {
    let deletes: Vec<String> = plan
        .forecast
        .deletes
        .iter()
        .map(ToString::to_string)
        .collect();
    for (is_delete, verb, one, many, entries) in [
        (true, "Deletes", "child", "children", deletes),
        (false, "Fails for", "parent", "parents", faults(plan)),
    ] {
        if entries.is_empty() {
            continue;
        }
        let number = entries.len();
        let counted = count(number, one, many);
        title(out, &format!("{verb} {counted}:"), is_delete);
        for text in entries.iter().take(NAMED_MAX) {
            entry(out, text, is_delete);
        }
        if number > NAMED_MAX {
            out.line(format!("{start}and {} more", number - NAMED_MAX));
        }
        out.line("");
    }
}

/// Returns the new faults as lines.
fn faults(plan: &FleetPlan) -> Vec<String> {
    let fault = |(parent, plan): (&ObjectId, &ParentPlan)| match &plan.outcome {
        ParentOutcome::Fault {
            reason,
            message,
            known: false,
        } => Some(format!("{parent}: {reason}: {message}")),
        _ => None,
    };
    plan.parents().iter().filter_map(fault).collect()
}

/// Returns the differences of `--parent`.
fn requested(plan: &FleetPlan) -> impl Iterator<Item = (&ObjectId, Vec<String>)> {
    plan.parents()
        .iter()
        .filter(|(_, plan)| plan.is_asked)
        .map(|(parent, plan)| {
            let lines = match &plan.outcome {
                ParentOutcome::Planned(planned) if planned.differences.is_empty() => {
                    vec!["unchanged".to_owned()]
                }
                ParentOutcome::Planned(planned) => planned.differences.clone(),
                ParentOutcome::Fault {
                    reason, message, ..
                } => vec![format!("fails: {reason}: {message}")],
                ParentOutcome::Skipped => vec!["has no pass".to_owned()],
            };
            (parent, lines)
        })
}

fn markdown(plan: &FleetPlan) -> Output {
    let mut out = Output::from_line(format!("### {}", heading(plan)));
    out.line("");
    let title = |out: &mut Output, text: &str, _| {
        out.line(format!("**{text}**"));
        out.line("");
    };
    let entry = |out: &mut Output, text: &str, _| {
        // A plugin's text must not end the code and add Markdown to a pull request.
        out.line(format!("- `{}`", text.replace('`', "'")));
    };
    add_findings(&mut out, plan, "- ", &title, &entry);
    if !plan.forecast.kinds.is_empty() {
        out.line("| Children | Deletes | Creates | Updates |");
        out.line("|---|---|---|---|");
        for (kind, writes) in &plan.forecast.kinds {
            let [creates, updates, deletes] = cells(*writes);
            out.line(format!("| {kind} | {deletes} | {creates} | {updates} |"));
        }
        out.line("");
    }
    out.line(format!("{}.", summary(&plan.forecast)));
    for (parent, differences) in requested(plan) {
        out.line("");
        out.line(format!("<details><summary>{parent}</summary>"));
        out.line("");
        out.line("```");
        for difference in differences {
            out.line(difference.replace("```", "'''"));
        }
        out.line("```");
        out.line("");
        out.line("</details>");
    }
    out
}

fn cells(writes: Writes) -> [String; 3] {
    [writes.creates, writes.updates, writes.deletes].map(|number| number.to_string())
}

fn count(number: usize, one: &str, many: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        more => format!("{more} {many}"),
    }
}

fn short(revision: &str) -> &str {
    let digits = revision.trim_start_matches("sha256:");
    digits.get(..16).unwrap_or(digits)
}
