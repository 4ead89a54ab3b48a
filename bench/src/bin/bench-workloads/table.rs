//! Tables of Markdown.

use std::fmt;

pub struct Table {
    title: &'static str,
    columns: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(title: &'static str, columns: &'static [&'static str]) -> Self {
        Self { title, columns, rows: Vec::new() }
    }

    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "## {}\n\n| {} |", self.title, self.columns.join(" | "))?;
        writeln!(out, "|{}", "---|".repeat(self.columns.len()))?;
        self.rows.iter().try_for_each(|row| writeln!(out, "| {} |", row.join(" | ")))
    }
}

/// A number with one digit after the point, or a dash.
pub fn figure(value: Option<f64>) -> String {
    value.map_or("–".into(), |value| format!("{value:.1}"))
}

/// How often the second number is in the first one.
pub fn ratio(value: Option<f64>, base: Option<f64>) -> String {
    match value.zip(base) {
        Some((value, base)) if base > 0.0 => format!("{:.2} ×", value / base),
        _ => "–".into(),
    }
}
