//! Cron expressions with the semantics of Kubernetes: it rejects the same expressions and computes the
//! same due times.
//!
//! Five fields with numbers or names, lists, ranges and steps. If both day fields are restricted, a day
//! must match one of them. Sunday is 0, not 7.

use k8s_openapi::jiff::{Timestamp, civil, tz::TimeZone};

/// The years to search for a due time: two successive 29th of February are at most eight years apart.
const YEARS_MAX: i16 = 9;

/// A parsed expression; bit n of a field stands for the value n.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// One of the two day fields is not restricted, so a day must match both.
    any_day: bool,
}

const MONTHS: &[&str] = &[
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Cron {
    /// Parses an expression. The error is a message for the user.
    pub(crate) fn parse(expression: &str) -> Result<Self, String> {
        let expression = match expression {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let fields: Vec<&str> = expression.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err("cron must have 5 fields or be an @ macro".to_owned());
        };
        let (minutes, _) = field(minutes, 0, 59, &[])?;
        let (hours, _) = field(hours, 0, 23, &[])?;
        let (days, any_day) = field(days, 1, 31, &[])?;
        let (months, _) = field(months, 1, 12, MONTHS)?;
        let (weekdays, any_weekday) = field(weekdays, 0, 6, WEEKDAYS)?;
        Ok(Self {
            minutes,
            hours,
            days,
            months,
            weekdays,
            any_day: any_day || any_weekday,
        })
    }

    /// The first due time after a moment, in UTC; none for an expression such as February 30.
    pub(crate) fn next_after(&self, moment: Timestamp) -> Option<Timestamp> {
        let start = moment.to_zoned(TimeZone::UTC).datetime();
        let mut date = start.date();
        let first =
            u32::try_from(start.hour()).ok()? * 60 + u32::try_from(start.minute()).ok()? + 1;
        let mut from = first;
        let last_year = date.year().saturating_add(YEARS_MAX);
        while date.year() <= last_year {
            if !has(self.months, date.month()) {
                date = date.last_of_month().tomorrow().ok()?;
                from = 0;
                continue;
            }
            if self.is_due_on(date)
                && let Some(minute) = (from..24 * 60).find(|it| self.is_due_at(*it))
            {
                let hour = i8::try_from(minute / 60).ok()?;
                let minute = i8::try_from(minute % 60).ok()?;
                let due = date.at(hour, minute, 0, 0);
                return due.to_zoned(TimeZone::UTC).ok().map(|due| due.timestamp());
            }
            date = date.tomorrow().ok()?;
            from = 0;
        }
        None
    }

    fn is_due_on(&self, date: civil::Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.any_day {
            day && weekday
        } else {
            day || weekday
        }
    }

    fn is_due_at(&self, minute: u32) -> bool {
        self.hours >> (minute / 60) & 1 == 1 && self.minutes >> (minute % 60) & 1 == 1
    }
}

fn has(bits: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| bits >> value & 1 == 1)
}

/// The values of a field, and true if the field is not restricted.
fn field(text: &str, min: u32, max: u32, names: &[&str]) -> Result<(u64, bool), String> {
    let mut bits = 0;
    let mut is_any = false;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => {
                let number = step.parse::<u32>().ok().filter(|step| *step > 0);
                let step = number.ok_or_else(|| format!("{part}: {step} is not a step"))?;
                (range, Some(step))
            }
            None => (part, None),
        };
        let is_star = range == "*" || range == "?";
        let (first, last) = if is_star {
            (min, max)
        } else if let Some((first, last)) = range.split_once('-') {
            (value(first, min, names)?, value(last, min, names)?)
        } else {
            let first = value(range, min, names)?;
            // `5/10` starts at 5 and has no upper limit but that of the field.
            (first, if step.is_some() { max } else { first })
        };
        if first < min || last > max || first > last {
            return Err(format!("{part} is not between {min} and {max}"));
        }
        let step = step.unwrap_or(1);
        is_any |= is_star && step == 1;
        bits = (first..=last)
            .filter(|value| (value - first) % step == 0)
            .fold(bits, |bits, value| bits | 1 << value);
    }
    Ok((bits, is_any))
}

fn value(text: &str, min: u32, names: &[&str]) -> Result<u32, String> {
    let position = names
        .iter()
        .position(|name| name.eq_ignore_ascii_case(text))
        .and_then(|position| u32::try_from(position).ok());
    match position {
        Some(position) => Ok(position + min),
        None => text
            .parse()
            .map_err(|_| format!("{text} is neither a number nor a name of this field")),
    }
}
