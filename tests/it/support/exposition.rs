//! A strict reader of the OpenMetrics text format: what it accepts, any collector of metrics can read.

use std::collections::{BTreeMap, BTreeSet};

/// The labels of a series, by name.
pub type Labels = BTreeMap<String, String>;

/// All metrics of a gateway at one time.
#[derive(Debug, Default)]
pub struct Exposition {
    families: BTreeMap<String, Family>,
}

#[derive(Debug, Default)]
struct Family {
    kind: Option<String>,
    help: Option<String>,
    /// The value of each series, by the name of its sample and its labels.
    samples: BTreeMap<(String, Labels), f64>,
}

impl Exposition {
    pub fn parse(text: &str) -> Result<Self, String> {
        let body = text.strip_suffix("# EOF\n").ok_or("the end is not marked")?;
        let (mut all, mut current) = (Self::default(), String::new());
        for line in body.lines() {
            all.read_line(line, &mut current).map_err(|problem| format!("{problem}: {line}"))?;
        }
        for (name, family) in &all.families {
            family.check(name).map_err(|problem| format!("{name}: {problem}"))?;
        }
        Ok(all)
    }

    fn read_line(&mut self, line: &str, current: &mut String) -> Result<(), String> {
        if let Some(comment) = line.strip_prefix("# ") {
            let [keyword, name, rest] = comment.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                return Err("a comment without a value".into());
            };
            if name != current {
                let is_new = self.families.insert(name.to_owned(), Family::default()).is_none();
                (is_new && is_name(name)).then_some(()).ok_or("a family appears twice, or has a bad name")?;
                name.clone_into(current);
            }
            let family = self.families.get_mut(name).ok_or("no family")?;
            family.samples.is_empty().then_some(()).ok_or("a comment after samples")?;
            let place = match keyword {
                "HELP" => &mut family.help,
                "TYPE" => &mut family.kind,
                _ => return Err("an unknown comment".into()),
            };
            return place.replace(rest.to_owned()).map_or(Ok(()), |_| Err(format!("a second {keyword}")));
        }
        let (name, labels, value) = read_sample(line)?;
        let family = self.families.get_mut(current).ok_or("a sample before its family")?;
        let kind = family.kind.as_deref().ok_or("a sample before its type")?;
        let suffix = name.strip_prefix(current.as_str()).ok_or("a sample of another family")?;
        let allowed: &[&str] = match kind {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            "info" => &["_info"],
            _ => return Err(format!("an unknown type {kind}")),
        };
        allowed.contains(&suffix).then_some(()).ok_or("a suffix that its type does not have")?;
        match family.samples.insert((name, labels), value) {
            None => Ok(()),
            Some(_) => Err("a series appears twice".into()),
        }
    }

    /// The names of all families, as in comments.
    pub fn families(&self) -> impl Iterator<Item = &str> {
        self.families.keys().map(String::as_str)
    }

    /// The names of all samples.
    pub fn names(&self) -> BTreeSet<&str> {
        self.series().map(|(name, ..)| name).collect()
    }

    /// All series: the names of their samples, labels and values.
    pub fn series(&self) -> impl Iterator<Item = (&str, &Labels, f64)> {
        let samples = self.families.values().flat_map(|family| &family.samples);
        samples.map(|((name, labels), value)| (name.as_str(), labels, *value))
    }

    /// The sum of all series of this name that have these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let is_meant =
            |has: &Labels| labels.iter().all(|(key, value)| has.get(*key).is_some_and(|has| has == value));
        self.series().filter(|(of, has, _)| *of == name && is_meant(has)).map(|(.., value)| value).sum()
    }
}

impl Family {
    fn check(&self, name: &str) -> Result<(), String> {
        let kind = self.kind.as_deref().ok_or("no type")?;
        self.help.as_deref().filter(|help| !help.is_empty()).ok_or("no description")?;
        if name.ends_with("_total") {
            return Err("the name of a family ends like a sample of a counter".into());
        }
        if kind != "gauge" && self.samples.values().any(|value| *value < 0.0) {
            return Err("a negative count".into());
        }
        if kind == "histogram" { self.check_buckets(name) } else { Ok(()) }
    }

    fn check_buckets(&self, name: &str) -> Result<(), String> {
        let mut histograms: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
        for ((sample, labels), count) in &self.samples {
            if *sample == format!("{name}_bucket") {
                let mut labels = labels.clone();
                let bound = labels.remove("le").ok_or("a bucket without a bound")?;
                let bound = bound.replace("+Inf", "inf").parse().map_err(|_| "a bad bound")?;
                histograms.entry(labels).or_default().push((bound, *count));
            }
        }
        for (labels, mut buckets) in histograms {
            buckets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
            if !buckets.is_sorted_by_key(|(_, count)| *count) {
                return Err(format!("buckets are not cumulative: {buckets:?}"));
            }
            let part = |part: &str| self.samples.get(&(format!("{name}_{part}"), labels.clone()));
            let last = buckets.last().filter(|(bound, _)| bound.is_infinite()).map(|(_, count)| count);
            if last.is_none() || last != part("count") || part("sum").is_none() {
                return Err(format!("the last bucket, the count and the sum do not agree: {labels:?}"));
            }
        }
        let counts = self.samples.keys().filter(|(sample, _)| *sample == format!("{name}_count")).count();
        let ends = self.samples.keys().filter(|(_, labels)| labels.get("le").is_some_and(|le| le == "+Inf"));
        (counts == ends.count()).then_some(()).ok_or_else(|| "a count without buckets".into())
    }
}

fn is_name(name: &str) -> bool {
    let is_first = |first: char| first.is_ascii_alphabetic() || first == '_';
    name.starts_with(is_first) && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

fn read_sample(line: &str) -> Result<(String, Labels, f64), String> {
    let end = line.find(['{', ' ']).ok_or("a sample without a value")?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Labels::new();
    if let Some(mut inside) = rest.strip_prefix('{') {
        while !inside.starts_with('}') {
            let (key, value) = inside.split_once("=\"").ok_or("a label without a value")?;
            let (value, after) = read_value(value)?;
            let is_new = labels.insert(key.to_owned(), value).is_none();
            (is_new && is_name(key)).then_some(()).ok_or("a label appears twice, or has a bad name")?;
            inside = match after.strip_prefix(',') {
                Some(more) => Some(more).filter(|more| !more.starts_with('}')).ok_or("a comma too many")?,
                None => after,
            };
            (!inside.is_empty()).then_some(()).ok_or("labels without an end")?;
        }
        rest = &inside[1..];
    }
    let value = rest.strip_prefix(' ').ok_or("no space before the value")?;
    let number = value.parse::<f64>().map_err(|_| "a value that is no number")?;
    (is_name(name) && !value.contains(' ')).then_some(()).ok_or("a bad name, or more than a value")?;
    Ok((name.to_owned(), labels, number))
}

/// Reads a quoted text after its first quote; returns what follows it, too.
fn read_value(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => value.push(match letters.next() {
                Some((_, '\\')) => '\\',
                Some((_, '"')) => '"',
                Some((_, 'n')) => '\n',
                _ => return Err("an unknown escape".into()),
            }),
            letter => value.push(letter),
        }
    }
    Err("a text without an end".into())
}
