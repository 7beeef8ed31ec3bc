//! Converts answers in contract version 0.1.0, with the checks that protect the host: sizes, counts and JSON. `policy`
//! checks the meaning.

use innkeeper_model::{
    Child, Condition, Desired, Event, Fault, Generated, Gvk, Limits, Outcome, Phase,
    PredictedChild, Prediction, Report,
};
use serde_json::{Map, Value};

use super::{
    super::{
        Answer, Rejected,
        json::{self, Nulls},
    },
    wit,
};
use crate::log::cut;

/// The API server's limit; a longer message is cut.
const EVENT_MESSAGE_BYTES_MAX: usize = 1024;
/// Half a condition's longest message, so that the host can add text.
const FAULT_MESSAGE_BYTES_MAX: usize = 16 * 1024;
/// Conditions and events per answer: more than a user can read.
const CONDITIONS_MAX: usize = 64;
const EVENTS_MAX: usize = 64;
/// Parts of a child that a prediction may depend on; the contract states it.
const PREDICTED_PARTS_MAX: usize = 64;
/// Entries in a child's `generate` and `after`; as many as an answer may have children by default.
const CHILD_ENTRIES_MAX: usize = 256;

pub(super) fn answer(
    answer: Result<wit::Outcome, wit::Fault>,
    phase: Phase,
    limits: &Limits,
) -> Result<Answer, Rejected> {
    // Before anything is parsed: a parsed text takes many times as much memory.
    let bytes = size(&answer);
    if bytes > limits.output_bytes_max {
        let max = limits.output_bytes_max;
        return Err(Rejected::new(
            "answer",
            format!("it has {bytes} bytes, {max} are allowed: state less, or raise limits.output"),
        ));
    }
    Ok(match answer {
        Ok(wit::Outcome::Desired(desired)) => Ok(Outcome::Desired(Desired {
            children: children(desired.children, limits)?,
            report: report(desired.report, limits)?,
            prediction: desired
                .prediction
                .map(|stated| prediction(stated, limits))
                .transpose()?,
        })),
        Ok(wit::Outcome::Keep(stated)) => Ok(Outcome::Keep(report(stated, limits)?)),
        Ok(wit::Outcome::Finalized(stated)) if phase == Phase::Finalize => {
            Ok(Outcome::Finalized(report(stated, limits)?))
        }
        Ok(wit::Outcome::Finalized(_)) => {
            return Err(Rejected::new(
                "answer",
                "finalized is an answer of phase finalize only: the parent is not being deleted",
            ));
        }
        Err(fault) => Err(Fault {
            kind: fault.kind.into(),
            message: cut(&fault.message, FAULT_MESSAGE_BYTES_MAX).to_owned(),
            report: fault
                .report
                .map(|stated| report(stated, limits))
                .transpose()?,
        }),
    })
}

fn children(stated: Vec<wit::Child>, limits: &Limits) -> Result<Vec<Child>, Rejected> {
    at_most("children", stated.len(), limits.children_max)?;
    stated
        .into_iter()
        .enumerate()
        .map(|(index, stated)| child(index, stated, limits))
        .collect()
}

fn child(index: usize, stated: wit::Child, limits: &Limits) -> Result<Child, Rejected> {
    let at = |field: &str| format!("child {index} (\"{}\"): {field}", cut(&stated.key, 253));
    object_size(&at("object"), &stated.object, limits)?;
    at_most(&at("generate"), stated.generate.len(), CHILD_ENTRIES_MAX)?;
    at_most(&at("after"), stated.after.len(), CHILD_ENTRIES_MAX)?;
    let object = json::object(&at("object"), &stated.object, Nulls::Absence)?;
    let kind = kind(&at("object"), &object)?;
    let name = required(&at("object"), &object, &["metadata", "name"])?.to_owned();
    let namespace = json::text(&at("object"), &object, &["metadata", "namespace"])?;
    Ok(Child {
        kind,
        namespace: namespace.map(str::to_owned),
        name,
        generate: stated.generate.into_iter().map(generated).collect(),
        apply: stated.apply.into(),
        removal: stated.removal.into(),
        readiness: stated.readiness.into(),
        object,
        key: stated.key,
        after: stated.after,
    })
}

fn kind(at: &str, object: &Map<String, Value>) -> Result<Gvk, Rejected> {
    let api_version = required(at, object, &["apiVersion"])?;
    let kind = required(at, object, &["kind"])?;
    Gvk::parse(api_version, kind)
        .map_err(|error| Rejected::new(format!("{at}.apiVersion"), error.to_string()))
}

fn required<'a>(
    at: &str,
    object: &'a Map<String, Value>,
    path: &[&str],
) -> Result<&'a str, Rejected> {
    match json::text(at, object, path)? {
        Some(text) if !text.is_empty() => Ok(text),
        _ => Err(Rejected::new(
            format!("{at}.{}", path.join(".")),
            "it is missing: every child names its apiVersion, kind and metadata.name",
        )),
    }
}

fn generated(stated: wit::Generated) -> Generated {
    Generated {
        key: stated.key,
        length: stated.length,
        alphabet: stated.alphabet,
        token: stated.token,
    }
}

fn report(stated: wit::Report, limits: &Limits) -> Result<Report, Rejected> {
    if let Some(status) = &stated.status {
        object_size("status", status, limits)?;
    }
    at_most("conditions", stated.conditions.len(), CONDITIONS_MAX)?;
    at_most("events", stated.events.len(), EVENTS_MAX)?;
    Ok(Report {
        status: stated
            .status
            .map(|text| json::object("status", &text, Nulls::Refused))
            .transpose()?,
        conditions: stated.conditions.into_iter().map(condition).collect(),
        events: stated.events.into_iter().map(event).collect(),
        requeue_after_ms: stated.requeue_after_ms,
    })
}

fn prediction(stated: wit::Prediction, limits: &Limits) -> Result<Prediction, Rejected> {
    at_most(
        "prediction.children",
        stated.children.len(),
        limits.children_max,
    )?;
    Ok(Prediction {
        report: report(stated.report, limits).map_err(|rejected| rejected.below("prediction."))?,
        children: stated
            .children
            .into_iter()
            .map(|child| predicted_child(child, limits))
            .collect::<Result<_, _>>()?,
    })
}

fn predicted_child(
    stated: wit::PredictedChild,
    limits: &Limits,
) -> Result<PredictedChild, Rejected> {
    let at = format!("prediction of child \"{}\"", cut(&stated.key, 253));
    at_most(&at, stated.parts.len(), PREDICTED_PARTS_MAX)?;
    let part = |part: wit::PredictedPart| -> Result<_, Rejected> {
        let value = |text: String| {
            object_size(&at, &text, limits)?;
            json::value(&at, &text)
        };
        Ok((part.pointer, part.value.map(value).transpose()?))
    };
    Ok(PredictedChild {
        parts: stated
            .parts
            .into_iter()
            .map(part)
            .collect::<Result<_, _>>()?,
        key: stated.key,
    })
}

fn condition(stated: wit::Condition) -> Condition {
    Condition {
        kind: stated.type_,
        status: stated.status.into(),
        reason: stated.reason,
        message: stated.message,
    }
}

fn event(stated: wit::Event) -> Event {
    Event {
        kind: stated.type_.into(),
        reason: stated.reason,
        message: cut(&stated.message, EVENT_MESSAGE_BYTES_MAX).to_owned(),
    }
}

fn object_size(at: &str, text: &str, limits: &Limits) -> Result<(), Rejected> {
    let bytes = text.len();
    let max = limits.object_bytes_max;
    if bytes <= max {
        return Ok(());
    }
    Err(Rejected::new(
        at,
        format!("it has {bytes} bytes, {max} are allowed: state less, or raise limits.object"),
    ))
}

fn at_most(at: &str, count: usize, max: usize) -> Result<(), Rejected> {
    if count <= max {
        return Ok(());
    }
    Err(Rejected::new(
        at,
        format!("there are {count}, {max} are allowed"),
    ))
}

/// Adds up the bytes in an answer's texts.
fn size(answer: &Result<wit::Outcome, wit::Fault>) -> usize {
    match answer {
        Ok(wit::Outcome::Desired(desired)) => {
            desired.children.iter().map(child_size).sum::<usize>()
                + report_size(&desired.report)
                + desired.prediction.as_ref().map_or(0, prediction_size)
        }
        Ok(wit::Outcome::Keep(report) | wit::Outcome::Finalized(report)) => report_size(report),
        Err(fault) => fault.message.len() + fault.report.as_ref().map_or(0, report_size),
    }
}

fn child_size(child: &wit::Child) -> usize {
    let generate = child
        .generate
        .iter()
        .map(|g| g.key.len() + g.alphabet.len() + g.token.as_ref().map_or(0, String::len));
    let after = child.after.iter().map(String::len);
    child.key.len() + child.object.len() + generate.sum::<usize>() + after.sum::<usize>()
}

fn prediction_size(prediction: &wit::Prediction) -> usize {
    let part =
        |part: &wit::PredictedPart| part.pointer.len() + part.value.as_ref().map_or(0, String::len);
    let child =
        |child: &wit::PredictedChild| child.key.len() + child.parts.iter().map(part).sum::<usize>();
    report_size(&prediction.report) + prediction.children.iter().map(child).sum::<usize>()
}

fn report_size(report: &wit::Report) -> usize {
    let conditions = report
        .conditions
        .iter()
        .map(|c| c.type_.len() + c.reason.len() + c.message.len());
    let events = report
        .events
        .iter()
        .map(|e| e.reason.len() + e.message.len());
    report.status.as_ref().map_or(0, String::len)
        + conditions.sum::<usize>()
        + events.sum::<usize>()
}
