//! Cron expressions as Kubernetes parses them: a reconciler refuses those that a CronJob would refuse, and computes
//! due times.
//!
//! An expression has five fields with numbers, names, lists, ranges and steps.
//! If both day fields are restricted, a day must match only one. Sunday is 0, never 7.
//! Due times are in UTC, or in a time zone whose offsets the caller passes, because a guest has no time zone database.

use k8s_openapi::jiff::{SignedDuration, Timestamp, civil, tz::TimeZone};

use innkeeper_sdk::hash::sha256_hex;

/// The years to search for a due time: February 29 returns after at most eight years, because 2100 is no leap year.
const YEARS_MAX: i16 = 9;

/// A parsed expression.
///
/// ```
/// use innkeeper_kit::cron::Cron;
///
/// let nightly = Cron::parse("30 2 * * *").unwrap();
/// let next = nightly.next_after("2026-08-20T03:00:00Z".parse().unwrap());
/// assert_eq!(next.unwrap().to_string(), "2026-08-21T02:30:00Z");
/// assert!(Cron::parse("60 * * * *").is_err());
/// ```
// Bit n of a field represents the value n.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether a day must match both day fields, because one is unrestricted.
    any_day: bool,
}

const MONTHS: &[&str] = &[
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Cron {
    /// Parses five fields or one of the macros `@yearly`, `@annually`, `@monthly`, `@weekly`,
    /// `@daily`, `@midnight` and `@hourly`.
    ///
    /// # Errors
    ///
    /// The wrong part, and the limits: `60 is not between 0 and 59`.
    pub fn parse(expression: &str) -> Result<Self, String> {
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

    /// Returns the first due time after a moment, in UTC; none if there is no such day, such as February 30.
    pub fn next_after(&self, moment: Timestamp) -> Option<Timestamp> {
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
                && let Some(minute) = (from..24 * 60).find(|minute| self.is_due_at(*minute))
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

    /// Returns the first due time after a moment, in a time zone, as a CronJob computes it; none without an
    /// offset.
    ///
    /// `offset` has the seconds east of UTC at an instant, as
    /// [`Host::zone_offset`](innkeeper_sdk::host::Host::zone_offset) returns them; it is called at most nine times. A local
    /// time that the switch to summer time skips is not due, and a repeated one is due twice.
    ///
    /// ```
    /// use innkeeper_kit::cron::Cron;
    ///
    /// let nightly = Cron::parse("30 2 * * *").unwrap();
    /// let next = nightly.next_after_in("2026-08-20T03:00:00Z".parse().unwrap(), |_| Some(7200));
    /// assert_eq!(next.unwrap().to_string(), "2026-08-21T00:30:00Z");
    /// ```
    pub fn next_after_in(
        &self,
        moment: Timestamp,
        offset: impl Fn(Timestamp) -> Option<i32>,
    ) -> Option<Timestamp> {
        let due = |moment: Timestamp, seconds: i32| {
            let seconds = SignedDuration::from_secs(seconds.into());
            let local = moment.checked_add(seconds).ok()?;
            self.next_after(local)?.checked_sub(seconds).ok()
        };
        let mut moment = moment;
        // A due time that the clock skips is followed by one that it does not, because changes are rare.
        for _ in 0..3 {
            let before = offset(moment)?;
            let guess = due(moment, before)?;
            let after = offset(guess)?;
            if after == before {
                return Some(guess);
            }
            // The offset changes in between, so the due time has the later offset, or the clock skips it.
            let other = due(moment, after)?;
            if offset(other)? == after {
                return Some(other);
            }
            moment = guess;
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

/// Expands the macros `@hourly-random`, `@daily-random`, `@weekly-random` and `@monthly-random` to five fields; other
/// expressions stay unchanged.
///
/// The time derives from the identity, for example `<namespace>/<name>`: it is stable per parent, and parents do not all
/// start at midnight.
///
/// ```
/// use innkeeper_kit::cron::{Cron, spread};
///
/// let drawn = spread("default/nightly", "@daily-random");
/// assert_eq!(spread("default/nightly", "@daily-random"), drawn);
/// assert!(Cron::parse(&drawn).is_ok());
/// assert_eq!(spread("default/nightly", "0 2 * * *"), "0 2 * * *");
/// ```
pub fn spread(identity: &str, expression: &str) -> String {
    let digest = sha256_hex(identity);
    let draw = |part: usize, below: u32| {
        let digits = &digest[part * 8..part * 8 + 8];
        u32::from_str_radix(digits, 16).unwrap_or_default() % below
    };
    let minute = draw(0, 60);
    let hour = draw(1, 24);
    match expression {
        "@hourly-random" => format!("{minute} * * * *"),
        "@daily-random" => format!("{minute} {hour} * * *"),
        "@weekly-random" => format!("{minute} {hour} * * {}", draw(2, 7)),
        // Not every month has the days 29 to 31.
        "@monthly-random" => format!("{minute} {hour} {} * *", draw(3, 28) + 1),
        other => other.to_owned(),
    }
}

fn has(bits: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| bits >> value & 1 == 1)
}

/// Returns a field's values, and whether it is unrestricted.
fn field(text: &str, min: u32, max: u32, names: &[&str]) -> Result<(u64, bool), String> {
    let mut bits = 0;
    let mut is_any = false;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => {
                let step = step
                    .parse::<u32>()
                    .ok()
                    .filter(|step| *step > 0)
                    .ok_or_else(|| format!("{part}: {step} is not a step"))?;
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
            // `5/10` starts at 5 and ends at the field's maximum.
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
            .map_err(|_| format!("{text} is neither a number nor a name that is known here")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Cron, Timestamp, spread};

    #[test]
    fn refuses_each_expression_that_kubernetes_refuses() {
        for (expression, problem) in [
            ("60 * * * *", "60 is not between 0 and 59"),
            ("* 24 * * *", "24 is not between 0 and 23"),
            ("* * 0 * *", "0 is not between 1 and 31"),
            ("* * * 13 *", "13 is not between 1 and 12"),
            ("* * * * 7", "7 is not between 0 and 6"),
            ("*/0 * * * *", "*/0: 0 is not a step"),
            ("5-1 * * * *", "5-1 is not between 0 and 59"),
            (
                "a * * * *",
                "a is neither a number nor a name that is known here",
            ),
            ("* * * *", "cron must have 5 fields or be an @ macro"),
            ("@never", "cron must have 5 fields or be an @ macro"),
        ] {
            assert_eq!(
                Cron::parse(expression).unwrap_err(),
                problem,
                "{expression}"
            );
        }
    }

    #[test]
    fn reads_names_lists_steps_and_macros() {
        let same = [
            ("@daily", "0 0 * * *"),
            ("@yearly", "0 0 1 jan *"),
            ("0 2 * jan-mar mon,fri", "0 2 * 1-3 1,5"),
            ("5/10 * ? * *", "5-59/10 * * * *"),
        ];
        for (left, right) in same {
            assert_eq!(Cron::parse(left), Cron::parse(right), "{left}");
        }
    }

    #[test]
    fn knows_the_next_due_time() {
        let table = [
            ("0 2 * * *", "2026-08-20T02:00:00Z", "2026-08-21T02:00:00Z"),
            ("0 2 * * *", "2026-08-20T01:59:59Z", "2026-08-20T02:00:00Z"),
            ("* * * * *", "2026-12-31T23:59:30Z", "2027-01-01T00:00:00Z"),
            ("0 0 31 * *", "2026-08-31T00:00:00Z", "2026-10-31T00:00:00Z"),
            ("0 0 29 2 *", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"),
            ("@weekly", "2026-08-20T00:00:00Z", "2026-08-23T00:00:00Z"),
            (
                "30 2/6 * * *",
                "2026-08-20T03:00:00Z",
                "2026-08-20T08:30:00Z",
            ),
            // Either day field matches when both are restricted.
            (
                "0 0 1 * mon",
                "2026-08-25T00:00:00Z",
                "2026-08-31T00:00:00Z",
            ),
            (
                "0 0 1 * mon",
                "2026-08-31T00:00:00Z",
                "2026-09-01T00:00:00Z",
            ),
        ];
        for (cron, after, expected) in table {
            let next = Cron::parse(cron)
                .unwrap()
                .next_after(after.parse().unwrap());
            assert_eq!(next.unwrap().to_string(), expected, "{cron} after {after}");
        }
        let never = Cron::parse("0 0 30 2 *").unwrap();
        assert_eq!(
            never.next_after("2026-01-01T00:00:00Z".parse().unwrap()),
            None
        );
    }

    // Berlin's clock goes from 02:00 to 03:00 on March 29 and from 03:00 to 02:00 on October 25, each at 01:00 UTC.
    #[test]
    fn knows_the_next_due_time_of_a_zone() {
        let berlin = |moment: Timestamp| {
            let [spring, autumn] = ["2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"];
            let is_summer = moment >= spring.parse().unwrap() && moment < autumn.parse().unwrap();
            Some(if is_summer { 7200 } else { 3600 })
        };
        let table = [
            ("0 2 * * *", "2026-01-10T00:00:00Z", "2026-01-10T01:00:00Z"),
            ("0 2 * * *", "2026-08-20T00:00:00Z", "2026-08-21T00:00:00Z"),
            ("0 0 1 * *", "2026-10-20T00:00:00Z", "2026-10-31T23:00:00Z"),
            ("0 0 1 4 *", "2026-01-20T00:00:00Z", "2026-03-31T22:00:00Z"),
            // The clock skips 02:30.
            ("30 2 * * *", "2026-03-29T00:00:00Z", "2026-03-30T00:30:00Z"),
            ("30 * * * *", "2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"),
            // 02:30 comes twice.
            ("30 2 * * *", "2026-10-24T23:00:00Z", "2026-10-25T00:30:00Z"),
            ("30 2 * * *", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
            ("30 2 * * *", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"),
            ("0 * * * *", "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z"),
        ];
        for (cron, after, expected) in table {
            let next = Cron::parse(cron)
                .unwrap()
                .next_after_in(after.parse().unwrap(), berlin);
            assert_eq!(next.unwrap().to_string(), expected, "after {after}");
        }
        let nightly = Cron::parse("0 2 * * *").unwrap();
        let moment = "2026-08-20T00:00:00Z".parse().unwrap();
        assert_eq!(nightly.next_after_in(moment, |_| None), None);
    }

    #[test]
    fn spreads_random_times_over_the_day() {
        let times: BTreeSet<String> = (0..200)
            .map(|number| spread(&format!("default/parent-{number}"), "@daily-random"))
            .collect();
        // 200 of 1440 minutes: about 13 are drawn twice.
        assert!(times.len() > 150, "{} different times", times.len());
        for random in ["@hourly-random", "@weekly-random", "@monthly-random"] {
            assert!(
                Cron::parse(&spread("default/a", random)).is_ok(),
                "{random}"
            );
        }
    }
}
