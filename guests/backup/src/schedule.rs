//! Translates every form of a schedule into one cron expression.
//!
//! The CronJob controller starts the runs. This module only translates, and computes due times for the report.

use innkeeper_kit::prelude::*;
use k8s_openapi::jiff::Timestamp;

use crate::api::Schedule;

#[cfg(test)]
mod tests;

/// A schedule as a CronJob has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effective {
    /// The CronJob's `schedule`.
    pub(crate) expression: String,
    /// The parsed expression, for due times.
    cron: Cron,
    /// Time zone, as an IANA name.
    zone: String,
}

impl Effective {
    /// The first due time after a moment; none in a time zone that the host does not know.
    pub(crate) fn next_after(&self, moment: Timestamp, host: &dyn Host) -> Option<Timestamp> {
        if matches!(self.zone.as_str(), "Etc/UTC" | "UTC") {
            return self.cron.next_after(moment);
        }
        self.cron.next_after_in(moment, |moment| {
            let moment = u64::try_from(moment.as_millisecond()).ok()?;
            host.zone_offset(&self.zone, moment)
        })
    }
}

/// Checks that the host knows a time zone. Kubernetes would refuse the CronJob, also for a name in other letters.
fn known_zone(zone: &str, host: &dyn Host) -> Result<(), String> {
    /// Any time; the zone alone matters.
    const MOMENT_MS: u64 = 1_700_000_000_000;
    let is_name = zone
        .split('/')
        .all(|part| part.starts_with(|character: char| character.is_ascii_uppercase()));
    let is_utc = matches!(zone, "Etc/UTC" | "UTC");
    if is_name && (is_utc || host.zone_offset(zone, MOMENT_MS).is_some()) {
        return Ok(());
    }
    Err(format!(
        "schedule.timeZone: {zone} is not a known time zone; use an IANA name such as Europe/Berlin"
    ))
}

/// Translates a schedule.
pub(crate) fn effective(
    request: &Request,
    host: &dyn Host,
    schedule: &Schedule,
) -> Result<Effective, String> {
    known_zone(&schedule.time_zone, host)?;
    let recurrence = &schedule.recurrence;
    let expression = match (&recurrence.cron, &recurrence.every) {
        (Some(cron), _) => {
            let identity = format!("{}/{}", request.namespace(), request.name());
            cron::spread(&identity, cron)
        }
        (None, Some(every)) => from_every(every, recurrence.at.as_deref())?,
        (None, None) => {
            return Err("schedule: set cron, or every with an optional at, not both".to_owned());
        }
    };
    let cron = Cron::parse(&expression).map_err(|problem| format!("schedule.cron: {problem}"))?;
    Ok(Effective {
        expression,
        cron,
        zone: schedule.time_zone.clone(),
    })
}

fn from_every(every: &str, at: Option<&str>) -> Result<String, String> {
    let at = at.filter(|at| !at.is_empty());
    let (hour, minute) = at.map_or(Ok((0, 0)), time_of_day)?;
    match every {
        "day" | "1day" | "1d" => return Ok(format!("{minute} {hour} * * *")),
        "week" | "1week" | "1w" | "7day" | "7d" => return Ok(format!("{minute} {hour} * * 0")),
        "month" | "1month" => return Ok(format!("{minute} {hour} 1 * *")),
        _ => {}
    }
    // A step starts again at each full hour or day, so one that does not divide it would give uneven intervals.
    let number = |digits: &str| digits.parse::<u32>().ok().filter(|number| *number > 0);
    if let Some(minutes) = every.strip_suffix('m').and_then(number)
        && 60 % minutes == 0
    {
        return Ok(match minutes {
            60 => format!("{minute} * * * *"),
            _ => format!("{} * * * *", stepped(minute, minutes)),
        });
    }
    if let Some(hours) = every.strip_suffix('h').and_then(number)
        && 24 % hours == 0
    {
        return Ok(match hours {
            24 => format!("{minute} {hour} * * *"),
            _ => format!("{minute} {} * * *", stepped(hour, hours)),
        });
    }
    Err(format!(
        "schedule.every: {every} cannot be expressed as a cron expression"
    ))
}

/// Returns a cron field with an offset and a step.
fn stepped(at: u32, step: u32) -> String {
    match (at % step, step) {
        (_, 1) => "*".to_owned(),
        (0, _) => format!("*/{step}"),
        (offset, _) => format!("{offset}/{step}"),
    }
}

fn time_of_day(at: &str) -> Result<(u32, u32), String> {
    let parsed = at.split_once(':').and_then(|(hour, minute)| {
        let hour = hour.parse::<u32>().ok().filter(|hour| *hour < 24)?;
        let minute = minute.parse::<u32>().ok().filter(|minute| *minute < 60)?;
        Some((hour, minute))
    });
    parsed.ok_or_else(|| format!("schedule.at: {at} is not a time of day, HH:MM"))
}
