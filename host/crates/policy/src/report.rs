//! The rules for a guest's report on the parent.

use std::collections::BTreeSet;

use innkeeper_model::{Condition, Event, Report, reason, syntax};

use super::Rejection;

/// Kubernetes' own limits for conditions (`metav1.Condition`).
const REASON_CHARS_MAX: usize = 1024;
const MESSAGE_CHARS_MAX: usize = 32_768;
/// The API server's limit for Events.
const EVENT_REASON_CHARS_MAX: usize = 128;

pub(super) fn check(report: &Report) -> Result<(), Rejection> {
    if let Some(status) = &report.status
        && status.contains_key("conditions")
    {
        return Err(Rejection::output(
            "the status holds `conditions`: state them in the report's own list, so that the host can merge them with its own",
        ));
    }
    let mut kinds = BTreeSet::new();
    for condition in &report.conditions {
        check_condition(condition)?;
        if !kinds.insert(condition.kind.as_str()) {
            return Err(Rejection::output(format!(
                "the condition {} is stated twice",
                condition.kind
            )));
        }
    }
    report.events.iter().try_for_each(check_event)
}

fn check_condition(condition: &Condition) -> Result<(), Rejection> {
    let Condition {
        kind,
        reason: why,
        message,
        status: _,
    } = condition;
    if kind == reason::SYNCED {
        return Err(Rejection::output(
            "the condition type Synced is reserved for the host: use another type",
        ));
    }
    if !syntax::is_condition_type(kind) {
        return Err(Rejection::output(format!(
            "\"{kind}\" is not a valid condition type: use letters, digits, dashes, dots and underscores, at most 316 characters"
        )));
    }
    if why.len() > REASON_CHARS_MAX || !syntax::is_reason(why) {
        return Err(Rejection::output(format!(
            "the condition {kind} has the reason \"{why}\": use one word in CamelCase of at most {REASON_CHARS_MAX} characters"
        )));
    }
    if message.chars().count() > MESSAGE_CHARS_MAX {
        return Err(Rejection::output(format!(
            "the message of the condition {kind} is longer than {MESSAGE_CHARS_MAX} characters"
        )));
    }
    Ok(())
}

fn check_event(event: &Event) -> Result<(), Rejection> {
    if event.reason.len() > EVENT_REASON_CHARS_MAX || !syntax::is_reason(&event.reason) {
        return Err(Rejection::output(format!(
            "an event has the reason \"{}\": use one word in CamelCase of at most {EVENT_REASON_CHARS_MAX} characters",
            event.reason
        )));
    }
    Ok(())
}
