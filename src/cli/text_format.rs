//! The formats of text that a server may ask for: `email`, `uri`, `date` and `date-time`.

use url::Url;

/// Returns what is wrong with a text in a format. Unknown formats are left to the server.
pub fn problem(format: &str, text: &str) -> Option<&'static str> {
    let (is_right, problem) = match format {
        "email" => (is_email(text), "must be an email address, such as name@example.com"),
        "uri" => (is_uri(text), "must be a URI, such as https://example.com/page"),
        "date" => (is_date(text), "must be a date, such as 2030-12-31"),
        "date-time" => (is_date_time(text), "must be a date and time, such as 2030-12-31T23:59:00Z"),
        _ => return None,
    };
    (!is_right).then_some(problem)
}

fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let is_part = |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || c == '@');
    is_part(local) && is_part(domain) && domain.split('.').all(|label| !label.is_empty())
}

fn is_uri(text: &str) -> bool {
    !text.contains(char::is_whitespace) && Url::parse(text).is_ok()
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else { return false };
    let (Some(year), Some(month), Some(day)) = (digits(year, 4), digits(month, 2), digits(day, 2)) else {
        return false;
    };
    let is_leap_year = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if is_leap_year => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    (1..=days).contains(&day)
}

/// As in RFC 3339: the offset from UTC is required, fractions of a second are allowed, and so is a leap second.
fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't', ' ']) else { return false };
    let (clock, is_offset) = if let Some(clock) = time.strip_suffix(['Z', 'z']) {
        (clock, true)
    } else if let Some(at) = time.rfind(['+', '-']) {
        (&time[..at], is_time(&time[at + 1..], &[23, 59]))
    } else {
        return false;
    };
    let (clock, is_fraction) = match clock.split_once('.') {
        Some((clock, fraction)) => {
            (clock, !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit()))
        }
        None => (clock, true),
    };
    is_date(date) && is_time(clock, &[23, 59, 60]) && is_fraction && is_offset
}

/// Tells whether a text has two digits for each limit, separated by colons and within the limits.
fn is_time(text: &str, limits: &[u32]) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    let is_within = |(part, limit): (&&str, &u32)| digits(part, 2).is_some_and(|value| value <= *limit);
    parts.len() == limits.len() && parts.iter().zip(limits).all(is_within)
}

fn digits(text: &str, count: usize) -> Option<u32> {
    let is_number = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_its_rules_and_an_unknown_one_has_none() {
        let right = [
            ("email", "a.b+c@mail.example.com"),
            ("email", "a@localhost"),
            ("uri", "https://example.com/a?b#c"),
            ("uri", "urn:isbn:1"),
            ("date", "2024-02-29"),
            ("date", "2000-02-29"),
            ("date-time", "2030-12-31T23:59:60Z"),
            ("date-time", "2030-12-31t23:59:00.25+05:30"),
            ("postcode", "anything"),
        ];
        for (format, text) in right {
            assert_eq!(problem(format, text), None, "{format} {text}");
        }
        let wrong = [
            ("email", "a"),
            ("email", "@b.com"),
            ("email", "a@b..com"),
            ("email", "a b@c.com"),
            ("email", "a@b@c.com"),
            ("uri", "/path"),
            ("uri", "http://a b"),
            ("uri", "https://"),
            ("date", "2023-02-29"),
            ("date", "1900-02-29"),
            ("date", "2023-13-01"),
            ("date", "2023-04-31"),
            ("date", "23-04-01"),
            ("date", "2023-04-+1"),
            ("date-time", "2030-12-31"),
            ("date-time", "2030-12-31T23:59:00"),
            ("date-time", "2030-12-31T24:00:00Z"),
            ("date-time", "2030-12-31T23:59:00.Z"),
            ("date-time", "2030-12-31T23:59:00+5:30"),
        ];
        for (format, text) in wrong {
            assert!(problem(format, text).is_some(), "{format} {text}");
        }
    }
}
