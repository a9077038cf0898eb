//! Times as text: what users write, and what is printed for them. Dates are of the Gregorian calendar, in UTC or a zone.

use std::fmt;
use std::ops::RangeInclusive;

use chrono::{DateTime, Datelike as _, NaiveDate};

const DAY_MS: i64 = 86_400_000;
const MINUTE_MS: i64 = 60_000;
/// Milliseconds of 1990-01-01. A smaller number is more likely a number of seconds, or of a date.
const YEAR_1990_MS: i64 = 631_152_000_000;
/// Milliseconds of 1970-01-01T02:46:40. A smaller number is neither a date of eight digits nor seconds since April 1970.
const LEAST_UNCLEAR: i64 = 10_000_000;
/// Years of four digits.
const YEARS: RangeInclusive<i32> = 1..=9999;

/// A time in milliseconds that prints as ISO 8601, or as its number if its year has not four digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeText(pub i64);

impl fmt::Display for TimeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::from_timestamp_millis(self.0).filter(|time| YEARS.contains(&time.year())) {
            Some(time) => write!(f, "{}", time.format("%Y-%m-%dT%H:%M:%S%.3fZ")),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A time zone: returns its offset from UTC in ms at a time in ms. `None` is UTC.
pub type Zone<'a> = Option<&'a dyn Fn(i64) -> i64>;

/// Returns a time in milliseconds as ISO 8601 in a zone, or its number if its year has not four digits.
pub fn zoned_text(time_ms: i64, zone: Zone<'_>) -> String {
    let Some(offset) = zone.map(|zone| zone(time_ms)) else { return TimeText(time_ms).to_string() };
    let text = TimeText(time_ms.saturating_add(offset)).to_string();
    let Some(wall) = text.strip_suffix('Z') else { return TimeText(time_ms).to_string() };
    let minutes = offset.unsigned_abs() / MINUTE_MS.unsigned_abs();
    format!("{wall}{}{:02}:{:02}", if offset < 0 { '-' } else { '+' }, minutes / 60, minutes % 60)
}

/// Returns the time at which the clocks of a zone show a time. If they show it twice, it is the first, or as the end of a range the
/// last; if never, as if they had not been put forward.
fn time_of_clock(wall: i64, end: bool, zone: Zone<'_>) -> i64 {
    let Some(zone) = zone else { return wall };
    // The offsets before and after a change of the clocks, which is less than a day away.
    let times = [-DAY_MS, DAY_MS].map(|away| wall.saturating_sub(zone(wall.saturating_add(away))));
    let shown = times.into_iter().filter(|&time| time.saturating_add(zone(time)) == wall);
    if end { shown.max() } else { shown.min() }.unwrap_or(times[0])
}

/// The days from 1970-01-01 to a date; `None` if the calendar has no such date.
fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let year = i32::try_from(year).ok().filter(|year| YEARS.contains(year))?;
    let date = NaiveDate::from_ymd_opt(year, u32::try_from(month).ok()?, u32::try_from(day).ok()?)?;
    Some(date.signed_duration_since(NaiveDate::default()).num_days())
}

/// Returns the milliseconds of a time that a user wrote: epoch milliseconds, ISO 8601, an age such as `-2h`, `now`, `today`,
/// `yesterday`, or a time of today such as `11:30`.
///
/// A time without a zone of its own is in `zone`. A date, also as `20261121`, is its first millisecond, or as the end of a range its last.
/// Fractions of a millisecond are rounded into the range.
///
/// # Errors
///
/// The expected and the found value. A number before 1990 is refused with both of its readings.
pub fn parse_time(text: &str, now_ms: i64, end: bool, zone: Zone<'_>) -> Result<i64, String> {
    let today = |days: i64| {
        let wall = now_ms.saturating_add(zone.map_or(0, |zone| zone(now_ms)));
        wall.saturating_sub(wall.rem_euclid(DAY_MS)).saturating_add(days * DAY_MS)
    };
    let day = |start: i64| Ok(time_of_clock(if end { start.saturating_add(DAY_MS - 1) } else { start }, end, zone));
    match text {
        "now" => return Ok(now_ms),
        "today" => return day(today(0)),
        "yesterday" => return day(today(-1)),
        _ => (),
    }
    if let Some(since_midnight) = time_of_day(text, end) {
        return Ok(time_of_clock(today(0).saturating_add(since_midnight), end, zone));
    }
    if let Some(age) = text.strip_prefix('-').and_then(age_ms) {
        // A cast of such a number is exact enough for an age, and cannot wrap.
        #[expect(clippy::cast_possible_truncation, reason = "saturates")]
        return if age < 9e18 { Ok(now_ms.saturating_sub(age as i64)) } else { Err(too_large(text)) };
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.len() <= 30 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && text.len() != 8 {
        let number: i64 = text.parse().ok().filter(|&number| number != i64::MIN).ok_or_else(|| too_large(text))?;
        if number >= YEAR_1990_MS {
            return Ok(number);
        }
        return Err(ambiguous(number, text));
    }
    let time = iso(text, end).map(|(ms, zoned)| if zoned { ms } else { time_of_clock(ms, end, zone) });
    time.ok_or_else(|| {
        let known = "epoch milliseconds, ISO 8601 such as 2026-11-21T19:30:00Z, an age such as -2h, now, today, yesterday, or 11:30";
        let shown: String = text.chars().take(80).collect();
        format!("expected a time ({known}): '{}'", shown.escape_debug())
    })
}

/// Checks a number of milliseconds that a program passes as a bound of a time range.
///
/// Numbers below 10,000,000, such as 0, are times before all messages. From there to 1990, a number is more likely seconds or the
/// digits of a date, and the range would contain everything or nothing.
///
/// # Errors
///
/// The readings of the number.
pub fn check_bound(number: i64) -> Result<(), String> {
    if (LEAST_UNCLEAR..YEAR_1990_MS).contains(&number) {
        return Err(ambiguous(number, &number.to_string()));
    }
    Ok(())
}

/// Returns the error text for a number before 1990.
fn ambiguous(number: i64, text: &str) -> String {
    let (ms, seconds) = (TimeText(number), number.saturating_mul(1000));
    let date = days_of(number / 10_000, number / 100 % 100, number % 100).map(|days| {
        let date = TimeText(days * DAY_MS).to_string();
        format!(", {} as a date", date.get(..10).unwrap_or_default())
    });
    let readings = format!("{ms} in milliseconds, {} in seconds{}", TimeText(seconds), date.unwrap_or_default());
    format!("{text} is ambiguous: {readings}; expected milliseconds of 1990 or later, or ISO 8601")
}

fn too_large(text: &str) -> String {
    format!("a time must fit in a signed 64-bit integer of milliseconds: {text}")
}

/// Milliseconds of an age such as `1.5d`.
fn age_ms(text: &str) -> Option<f64> {
    let (number, unit) = text.split_at(text.find(|letter: char| letter.is_ascii_alphabetic())?);
    let unit_ms = match unit {
        "ms" => 1.0,
        "s" => 1e3,
        "m" => 60e3,
        "h" => 3_600e3,
        "d" => 86_400e3,
        "w" => 604_800e3,
        _ => return None,
    };
    let mut parts = number.split('.');
    let is_part = |part: &str| (1..=20).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    let whole = parts.next().is_some_and(is_part) && parts.next().is_none_or(is_part) && parts.next().is_none();
    if whole { Some((number.parse::<f64>().ok()? * unit_ms).round()) } else { None }
}

/// Returns the milliseconds of ISO 8601 with a time and a zone; of another text `None`. Fractions of a millisecond are rounded
/// down, or up.
pub fn zoned_time(text: &str, down: bool) -> Option<i64> {
    iso(text, down).filter(|&(_, zoned)| zoned).map(|(ms, _)| ms)
}

/// Milliseconds of ISO 8601, and whether it has a zone.
fn iso(text: &str, end: bool) -> Option<(i64, bool)> {
    let mut rest = text;
    let year = take(&mut rest, 4)?;
    let dashes = skip(&mut rest, "-");
    let month = take(&mut rest, 2)?;
    if dashes != skip(&mut rest, "-") {
        return None;
    }
    let date_ms = days_of(year, month, take(&mut rest, 2)?)? * DAY_MS;
    if rest.is_empty() {
        return Some((if end { date_ms + DAY_MS - 1 } else { date_ms }, false));
    }
    if !(skip(&mut rest, "T") || skip(&mut rest, "t") || skip(&mut rest, " ")) {
        return None;
    }
    let since_midnight = clock(&mut rest, end)?;
    let zoned = !rest.is_empty();
    let zone_minutes = match rest.split_at_checked(1) {
        None | Some(("Z" | "z", "")) => 0,
        Some((sign @ ("+" | "-"), mut zone)) => {
            let hours = take(&mut zone, 2)?;
            skip(&mut zone, ":");
            let minutes = if zone.is_empty() { 0 } else { take(&mut zone, 2)? };
            if !zone.is_empty() || hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 60 + minutes) * if sign == "-" { -1 } else { 1 }
        }
        Some(_) => return None,
    };
    Some((date_ms + since_midnight - zone_minutes * MINUTE_MS, zoned))
}

/// Takes a time of a day; returns its milliseconds since midnight.
fn clock(rest: &mut &str, end: bool) -> Option<i64> {
    let hour = take(rest, 2)?;
    let (mut minute, mut second, mut ms, mut is_finer) = (0, 0, 0, false);
    let colons = skip(rest, ":");
    if colons || rest.starts_with(|letter: char| letter.is_ascii_digit()) {
        minute = take(rest, 2)?;
        if if colons { skip(rest, ":") } else { rest.starts_with(|letter: char| letter.is_ascii_digit()) } {
            second = take(rest, 2)?;
            if skip(rest, ".") || skip(rest, ",") {
                let length = rest.bytes().take_while(u8::is_ascii_digit).count();
                let (decimals, after) = rest.split_at(length);
                ms = format!("{decimals:0<3}").get(..3).filter(|_| length > 0)?.parse().ok()?;
                is_finer = decimals.get(3..).is_some_and(|finer| finer.bytes().any(|digit| digit != b'0'));
                *rest = after;
            }
        }
    }
    let is_valid = hour <= 23 && minute <= 59 && second <= 59;
    is_valid.then_some(((hour * 60 + minute) * 60 + second) * 1_000 + ms + i64::from(is_finer && !end))
}

/// Returns the milliseconds since midnight of a text such as `11:30` or `9:30:15`.
fn time_of_day(text: &str, end: bool) -> Option<i64> {
    let hour = text.find(':').filter(|digits| (1..=2).contains(digits))?;
    let padded = format!("{}{text}", if hour == 1 { "0" } else { "" });
    let mut rest = padded.as_str();
    clock(&mut rest, end).filter(|_| rest.is_empty())
}

/// Takes a number of this many digits.
fn take(rest: &mut &str, digits: usize) -> Option<i64> {
    let (number, after) = rest.split_at_checked(digits)?;
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    *rest = after;
    number.parse().ok()
}

/// Takes a text if it is next.
fn skip(rest: &mut &str, text: &str) -> bool {
    let after = rest.strip_prefix(text);
    *rest = after.unwrap_or(rest);
    after.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_as_dates_of_the_calendar() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_795_219_200_123, "2026-11-21T00:00:00.123Z"),
            (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
            (-62_135_596_800_001, "-62135596800001"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (253_402_300_800_000, "253402300800000"),
            (i64::MIN, "-9223372036854775808"),
        ] {
            assert_eq!(TimeText(ms).to_string(), expected);
        }
    }

    #[test]
    fn what_is_printed_is_parsed() {
        for day in -719_162..=2_932_896_i64 {
            let ms = day * DAY_MS + day.rem_euclid(DAY_MS);
            let text = TimeText(ms).to_string();
            assert_eq!(iso(&text, false).map(|(ms, _)| ms), Some(ms), "{text}");
        }
    }

    #[test]
    fn a_time_is_iso_8601_in_any_of_its_forms() {
        for text in [
            "2023-11-14T22:13:20Z",
            "2023-11-14 22:13:20",
            "20231114T221320",
            "2023-11-15T06:13:20+08:00",
            "2023-11-15t06:13:20+0800",
            "2023-11-15T06:13:20,000000000+08",
            "2023-11-14T14:43:20-07:30",
        ] {
            assert_eq!(parse_time(text, 0, false, None), Ok(1_700_000_000_000), "{text}");
        }
        assert_eq!(parse_time("2023-11-14T22", 0, true, None), Ok(1_699_999_200_000));
        assert_eq!(parse_time("2023-11-14T22:13:20.0009999Z", 0, false, None), Ok(1_700_000_000_001));
        assert_eq!(parse_time("2023-11-14T22:13:20.0009999Z", 0, true, None), Ok(1_700_000_000_000));
        assert_eq!(parse_time("20231114", 0, true, None), Ok(1_700_006_399_999));
        for text in [
            "",
            "soon",
            "2023-13-01",
            "2023-02-29",
            "2023-1114",
            "202311-14",
            "2023-11-14T",
            "2023-11-14T24:00",
            "2023-11-14x",
            "2023-11-14T22:13:60",
            "2023-11-14T22:13:20.",
            "2023-11-14T22:13:20+8",
            "2023-11-14T22:13:20+08:60",
            "20231314",
            "\u{e9}",
            "2023-11-14T2\u{e9}",
        ] {
            assert!(parse_time(text, 0, false, None).unwrap_err().starts_with("expected a time ("), "{text}");
        }
    }

    /// The clocks of Berlin in 2026: an hour ahead of UTC, and two from 29 March, 1:00 UTC, to 25 October, 1:00 UTC.
    fn berlin(ms: i64) -> i64 {
        if (1_774_746_000_000..1_792_890_000_000).contains(&ms) { 7_200_000 } else { 3_600_000 }
    }

    #[test]
    fn a_time_without_a_zone_is_of_the_given_zone() {
        let parse = |text: &str, end| {
            parse_time(text, 1_774_780_200_000, end, Some(&berlin)).map(|ms| TimeText(ms).to_string())
        };
        for (text, begin, end) in [
            ("2026-01-05T12:00", "2026-01-05T11:00:00.000Z", "2026-01-05T11:00:00.000Z"),
            ("2026-07-05T12:00", "2026-07-05T10:00:00.000Z", "2026-07-05T10:00:00.000Z"),
            ("2026-07-05T12:00Z", "2026-07-05T12:00:00.000Z", "2026-07-05T12:00:00.000Z"),
            ("2026-07-05T12:00+09:00", "2026-07-05T03:00:00.000Z", "2026-07-05T03:00:00.000Z"),
            // The day of the change has 23 hours. 2:30 is shown by no clock.
            ("2026-03-29", "2026-03-28T23:00:00.000Z", "2026-03-29T21:59:59.999Z"),
            ("2026-03-29T02:30", "2026-03-29T01:30:00.000Z", "2026-03-29T01:30:00.000Z"),
            // 2:30 comes twice.
            ("2026-10-25T02:30", "2026-10-25T00:30:00.000Z", "2026-10-25T01:30:00.000Z"),
            ("20261025", "2026-10-24T22:00:00.000Z", "2026-10-25T22:59:59.999Z"),
            ("now", "2026-03-29T10:30:00.000Z", "2026-03-29T10:30:00.000Z"),
            ("today", "2026-03-28T23:00:00.000Z", "2026-03-29T21:59:59.999Z"),
            ("yesterday", "2026-03-27T23:00:00.000Z", "2026-03-28T22:59:59.999Z"),
            ("11:30", "2026-03-29T09:30:00.000Z", "2026-03-29T09:30:00.000Z"),
            ("9:30:15.5", "2026-03-29T07:30:15.500Z", "2026-03-29T07:30:15.500Z"),
            ("-1h", "2026-03-29T09:30:00.000Z", "2026-03-29T09:30:00.000Z"),
        ] {
            assert_eq!(parse(text, false).as_deref(), Ok(begin), "{text}");
            assert_eq!(parse(text, true).as_deref(), Ok(end), "{text}");
        }
        for text in ["24:00", "11:60", "11:30Z", "11:", ":30", "111:30", "Today", "tomorrow"] {
            assert!(parse(text, false).unwrap_err().starts_with("expected a time ("), "{text}");
        }
        assert_eq!(parse_time("today", i64::MIN, false, None), Ok(i64::MIN));
    }

    #[test]
    fn times_print_in_a_zone_and_are_parsed_again() {
        for (ms, expected) in [
            (1_774_745_999_999, "2026-03-29T01:59:59.999+01:00"),
            (1_774_746_000_000, "2026-03-29T03:00:00.000+02:00"),
            (i64::MAX, "9223372036854775807"),
        ] {
            let text = zoned_text(ms, Some(&berlin));
            assert_eq!(text, expected);
            assert_eq!(parse_time(&text, 0, false, None), Ok(ms));
        }
        assert_eq!(zoned_text(0, Some(&|_| -12_600_000)), "1969-12-31T20:30:00.000-03:30");
        assert_eq!(zoned_text(0, None), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn an_age_counts_from_now() {
        for (text, ms) in [("-500ms", 500), ("-2s", 2_000), ("-1.5d", 129_600_000), ("-3w", 1_814_400_000)] {
            assert_eq!(parse_time(text, 2_000_000_000_000, false, None), Ok(2_000_000_000_000 - ms));
        }
        for text in ["-2y", "-.5h", "-1.h", "-1.2.3h", "--1h", "-h"] {
            assert!(parse_time(text, 0, false, None).unwrap_err().starts_with("expected a time ("), "{text}");
        }
        assert!(parse_time("-99999999999999999d", 0, false, None).unwrap_err().contains("64-bit"));
    }

    #[test]
    fn a_bound_that_may_be_of_seconds_or_a_date_is_refused_with_its_readings() {
        for number in [i64::MIN, -1, 0, 1, 9_999_999, YEAR_1990_MS, 1_795_219_200_000, i64::MAX] {
            assert_eq!(check_bound(number), Ok(()), "{number}");
        }
        for number in [10_000_000, 1_795_219_200, 99_999_999_999, YEAR_1990_MS - 1] {
            let refused = check_bound(number).unwrap_err();
            assert_eq!(
                refused,
                parse_time(&format!("{number:09}"), 0, false, None).unwrap_err().trim_start_matches('0')
            );
        }
        assert_eq!(
            check_bound(20_261_121).unwrap_err(),
            "20261121 is ambiguous: 1970-01-01T05:37:41.121Z in milliseconds, 1970-08-23T12:05:21.000Z in seconds, \
             2026-11-21 as a date; expected milliseconds of 1990 or later, or ISO 8601"
        );
    }

    #[test]
    fn a_number_before_1990_is_refused_with_both_readings() {
        assert_eq!(parse_time("631152000000", 0, false, None), Ok(631_152_000_000));
        assert_eq!(
            parse_time("1795219200", 0, false, None).unwrap_err(),
            "1795219200 is ambiguous: 1970-01-21T18:40:19.200Z in milliseconds, 2026-11-21T00:00:00.000Z in seconds; \
             expected milliseconds of 1990 or later, or ISO 8601"
        );
        for text in ["0", "-5", "+17", "2026"] {
            assert!(parse_time(text, 0, false, None).unwrap_err().contains("ambiguous"));
        }
        assert!(parse_time("99999999999999999999", 0, false, None).unwrap_err().contains("64-bit"));
    }
}
