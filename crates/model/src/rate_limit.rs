//! Rate limits of clients, users, servers and tools: how many calls per minute they may have, and how many at once.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{FieldError, Fields, pattern};

/// The most patterns in the tool limits of a server: each call of a tool is compared with all of them.
const MAX_PATTERNS: usize = 100;

/// A limit of calls per minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RateLimit {
    /// At least 1.
    pub calls_per_minute: u32,
    /// How many calls may come at once, at least 1; as many as in a minute if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

impl RateLimit {
    /// Takes the limit out of the fields of an object, if it has one.
    pub fn take(fields: &mut Fields, field: &str) -> Result<Option<Self>, FieldError> {
        let object = fields.object(field)?;
        object.map(|object| Self::parse(object).map_err(|error| error.within(field))).transpose()
    }

    pub fn parse(object: Map<String, Value>) -> Result<Self, FieldError> {
        let mut fields = Fields::new(object);
        let calls_per_minute = positive(&mut fields, "calls_per_minute")?;
        let limit = Self {
            calls_per_minute: calls_per_minute
                .ok_or_else(|| FieldError::new("calls_per_minute", "is required"))?,
            burst: positive(&mut fields, "burst")?,
        };
        fields.finish()?;
        Ok(limit)
    }

    /// How many calls may come at once.
    pub fn burst_size(&self) -> u32 {
        self.burst.unwrap_or(self.calls_per_minute)
    }
}

fn positive(fields: &mut Fields, field: &str) -> Result<Option<u32>, FieldError> {
    let wrong = || FieldError::new(field, format!("must be a whole number from 1 to {}", u32::MAX));
    let number = |value: Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    let positive = |value| number(value).filter(|number| *number > 0).ok_or_else(wrong);
    fields.take(field).map(positive).transpose()
}

/// The limits of a server's tools, by native name or by a pattern in which `*` stands for any characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolLimits {
    by_key: BTreeMap<String, RateLimit>,
    /// The keys that are patterns, the longest first.
    patterns: Vec<String>,
}

impl ToolLimits {
    /// Takes the limits out of the fields of an object; without them there are none.
    pub fn take(fields: &mut Fields, field: &str) -> Result<Self, FieldError> {
        let entries = fields.object(field)?.unwrap_or_default();
        let entries = entries.into_iter().map(|(key, value)| {
            let name = format!("{field}.{key}");
            if key.is_empty() {
                return Err(FieldError::new(name, "must be the name of a tool, or a pattern"));
            }
            let mut limit = Fields::new(Map::from_iter([(name.clone(), value)]));
            let limit = RateLimit::take(&mut limit, &name)?;
            Ok((key, limit.ok_or_else(|| FieldError::new(name, "must be an object, not null"))?))
        });
        let by_key: BTreeMap<_, _> = entries.collect::<Result<_, _>>()?;
        let mut patterns: Vec<_> = by_key.keys().filter(|key| key.contains('*')).cloned().collect();
        if patterns.len() > MAX_PATTERNS {
            return Err(FieldError::new(field, format!("may have at most {MAX_PATTERNS} patterns")));
        }
        patterns.sort_by_key(|pattern| Reverse(pattern.chars().count()));
        Ok(Self { by_key, patterns })
    }

    /// The limit of a tool and the key under which it is given: the name of the tool if there is such a key, else the
    /// longest pattern that matches.
    pub fn find(&self, tool: &str) -> Option<(&str, RateLimit)> {
        let pattern = || self.patterns.iter().find(|pattern| pattern::matches(pattern, tool));
        let exact = self.by_key.get_key_value(tool);
        let (key, limit) = exact.or_else(|| pattern().and_then(|key| self.by_key.get_key_value(key)))?;
        Some((key, *limit))
    }

    pub fn by_key(&self) -> &BTreeMap<String, RateLimit> {
        &self.by_key
    }

    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Fields {
        Fields::new(value.as_object().unwrap().clone())
    }

    fn limits(value: Value) -> Result<ToolLimits, FieldError> {
        ToolLimits::take(&mut fields(json!({"tool_limits": value})), "tool_limits")
    }

    #[test]
    fn every_mistake_names_its_field() {
        let wrong = |value: Value| {
            RateLimit::take(&mut fields(json!({"rate_limit": value})), "rate_limit").unwrap_err().field
        };
        assert_eq!(wrong(json!(60)), "rate_limit");
        assert_eq!(wrong(json!({})), "rate_limit.calls_per_minute");
        for bad in [json!(0), json!(-1), json!(1.5), json!("60"), json!(1_u64 << 32)] {
            assert_eq!(wrong(json!({"calls_per_minute": bad})), "rate_limit.calls_per_minute", "{bad}");
            assert_eq!(wrong(json!({"calls_per_minute": 1, "burst": bad})), "rate_limit.burst", "{bad}");
        }
        assert_eq!(wrong(json!({"calls_per_minute": 1, "per": "hour"})), "rate_limit.per");
        let wrong = |value: Value| limits(value).unwrap_err().field;
        assert_eq!(wrong(json!([])), "tool_limits");
        assert_eq!(wrong(json!({"": {"calls_per_minute": 1}})), "tool_limits.");
        assert_eq!(wrong(json!({"a": null})), "tool_limits.a");
        assert_eq!(wrong(json!({"a": 1})), "tool_limits.a");
        assert_eq!(wrong(json!({"a": {"calls_per_minute": 0}})), "tool_limits.a.calls_per_minute");
        let limit = json!({"calls_per_minute": 1});
        let many = |count: usize| {
            (0..count).map(|number| (format!("{number}*"), limit.clone())).collect::<Map<_, _>>()
        };
        assert!(limits(many(MAX_PATTERNS).into()).is_ok());
        assert_eq!(wrong(many(MAX_PATTERNS + 1).into()), "tool_limits");
    }

    #[test]
    fn a_burst_is_a_minute_unless_it_is_given() {
        let limit = |value| RateLimit::take(&mut fields(json!({"rate_limit": value})), "rate_limit").unwrap();
        assert_eq!(limit(json!(null)), None);
        let plain = limit(json!({"calls_per_minute": 60, "burst": null})).unwrap();
        assert_eq!((plain.burst, plain.burst_size()), (None, 60));
        assert_eq!(json!(plain), json!({"calls_per_minute": 60}));
        let most = limit(json!({"calls_per_minute": 1, "burst": u32::MAX})).unwrap();
        assert_eq!(most.burst_size(), u32::MAX);
    }

    #[test]
    fn the_name_wins_over_patterns_and_the_longest_pattern_over_others() {
        let given = ["*", "get*", "get_*", "*_issue", "get_issue", "g**e"];
        let given =
            given.into_iter().zip(1..).map(|(key, n)| (key.to_owned(), json!({"calls_per_minute": n})));
        let limits = limits(Value::Object(given.collect())).unwrap();
        let found =
            |tool: &str| limits.find(tool).map(|(key, limit)| (key.to_owned(), limit.calls_per_minute));
        for (tool, key, number) in [
            ("get_issue", "get_issue", 5),
            ("close_issue", "*_issue", 4),
            ("get_x_issue", "*_issue", 4),
            ("get_pulls", "get_*", 3),
            ("getter", "get*", 2),
            ("gone", "g**e", 6),
            ("other", "*", 1),
            ("", "*", 1),
        ] {
            assert_eq!(found(tool), Some((key.to_owned(), number)), "{tool}");
        }
        assert_eq!(ToolLimits::default().find("a"), None);
    }
}
