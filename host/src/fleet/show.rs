//! A plan as text and Markdown; deletes come first.

use std::fmt::Write as _;

use innkeeper_command::plain;
use innkeeper_model::ObjectId;
use innkeeper_plan::{FleetPlan, Forecast, ParentOutcome, ParentPlan, Writes};

use crate::{config::PlanFormat, survey::table};

/// The number of deletes and of faults that people read; JSON has all.
const NAMED_MAX: usize = 20;

/// The reason why a write to a `String` does not fail.
const TAKES_ANY_TEXT: &str = "a String takes any text";

pub(super) fn all(plan: &FleetPlan, format: PlanFormat, has_colours: bool) -> String {
    match format {
        PlanFormat::Text => text(plan, has_colours),
        PlanFormat::Json => format!("{:#}\n", plan.json()),
        PlanFormat::Markdown => markdown(plan),
    }
}

fn text(plan: &FleetPlan, has_colours: bool) -> String {
    let red = |text: String, is_delete: bool| {
        if is_delete && has_colours {
            format!("\x1b[31m{text}\x1b[0m")
        } else {
            text
        }
    };
    let mut out = format!("{}\n\n", heading(plan));
    let indented = |text: String, is_delete| red(format!("  {text}"), is_delete);
    add_findings(&mut out, plan, "  ", red, indented);
    if !plan.forecast.kinds.is_empty() {
        let rows = plan.forecast.kinds.iter().map(|(kind, writes)| {
            let [creates, updates, deletes] = cells(*writes);
            [kind.to_string(), deletes, creates, updates]
        });
        out.push_str(&table(["CHILDREN", "DELETES", "CREATES", "UPDATES"], rows));
        out.push('\n');
    }
    line(&mut out, &format!("{}.", summary(&plan.forecast)));
    for (parent, differences) in asked(plan) {
        write!(out, "\n{parent}\n").expect(TAKES_ANY_TEXT);
        for difference in differences {
            line(&mut out, &format!("  {difference}"));
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

/// Returns the sums as a sentence without its full stop.
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
        (forecast.faults_known, "faults of the other plugin as well"),
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

/// Adds the deletes and the new faults. `title` and `entry` return lines; the line about more entries begins with `start`.
fn add_findings(
    out: &mut String,
    plan: &FleetPlan,
    start: &str,
    title: impl Fn(String, bool) -> String,
    entry: impl Fn(String, bool) -> String,
) {
    let ids = plan.forecast.deletes.iter();
    let deletes: Vec<String> = ids.map(ToString::to_string).collect();
    for (is_delete, verb, one, many, entries) in [
        (true, "Deletes", "child", "children", deletes),
        (false, "Fails for", "parent", "parents", faults(plan)),
    ] {
        if entries.is_empty() {
            continue;
        }
        let number = entries.len();
        let counted = count(number, one, many);
        line(out, &title(format!("{verb} {counted}:"), is_delete));
        for text in entries.into_iter().take(NAMED_MAX) {
            line(out, &entry(text, is_delete));
        }
        if number > NAMED_MAX {
            line(out, &format!("{start}and {} more", number - NAMED_MAX));
        }
        out.push('\n');
    }
}

/// Returns the new faults as lines.
fn faults(plan: &FleetPlan) -> Vec<String> {
    let fault = |(parent, plan): (&ObjectId, &ParentPlan)| match &plan.outcome {
        ParentOutcome::Fault {
            reason,
            message,
            known: false,
        } => Some(format!("{parent}: {reason}: {}", plain(message))),
        _ => None,
    };
    plan.parents().iter().filter_map(fault).collect()
}

/// Returns the parents that the user asked for, with their differences.
fn asked(plan: &FleetPlan) -> impl Iterator<Item = (&ObjectId, Vec<String>)> {
    let asked = plan.parents().iter().filter(|(_, one)| one.is_asked);
    asked.map(|(parent, one)| {
        let lines = match &one.outcome {
            ParentOutcome::Planned(planned) if planned.differences.is_empty() => {
                vec!["unchanged".to_owned()]
            }
            ParentOutcome::Planned(planned) => planned.differences.clone(),
            ParentOutcome::Fault {
                reason, message, ..
            } => vec![format!("fails: {reason}: {message}")],
            ParentOutcome::Skipped => vec!["has no pass".to_owned()],
        };
        (
            parent,
            lines.iter().map(|line| plain(line).into_owned()).collect(),
        )
    })
}

fn markdown(plan: &FleetPlan) -> String {
    let mut out = format!("### {}\n\n", heading(plan));
    let title = |text: String, _| format!("**{text}**\n");
    let entry = |text: String, _| format!("- `{}`", text.replace('`', "'"));
    add_findings(&mut out, plan, "- ", title, entry);
    if !plan.forecast.kinds.is_empty() {
        out.push_str("| Children | Deletes | Creates | Updates |\n|---|---|---|---|\n");
        for (kind, writes) in &plan.forecast.kinds {
            let [creates, updates, deletes] = cells(*writes);
            line(
                &mut out,
                &format!("| {kind} | {deletes} | {creates} | {updates} |"),
            );
        }
        out.push('\n');
    }
    line(&mut out, &format!("{}.", summary(&plan.forecast)));
    for (parent, differences) in asked(plan) {
        let lines = differences.join("\n").replace("```", "'''");
        write!(
            out,
            "\n<details><summary>{parent}</summary>\n\n```\n{lines}\n```\n\n</details>\n"
        )
        .expect(TAKES_ANY_TEXT);
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

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}
