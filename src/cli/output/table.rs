//! Tables with aligned columns. On a terminal, the widest columns are narrowed to fit and their text is wrapped; in a
//! pipe, each row is one line.

use console::{Style, measure_text_width, truncate_str};

use super::terminal::printable;

const GAP: &str = "  ";
/// Smallest width of a column; a longer header keeps it wider.
const NARROWEST: usize = 8;
/// Largest number of lines of a cell in a list. The commands that show one item have the full text.
const MOST_LINES: usize = 3;

/// The meaning of a cell, shown by its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    Good,
    Doubtful,
    Bad,
    Faint,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Tone::Plain => Style::new(),
            Tone::Good => Style::new().green(),
            Tone::Doubtful => Style::new().yellow(),
            Tone::Bad => Style::new().red(),
            Tone::Faint => Style::new().dim(),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub fn new(text: impl Into<String>, tone: Tone) -> Self {
        // Only the first line of a text goes into a cell.
        let text = printable(&text.into());
        let text = text.trim().lines().next().unwrap_or_default().replace('\t', " ");
        Self { text, tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Tone::Plain)
    }
}

#[derive(Debug)]
pub struct Table {
    header: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
    /// Largest number of lines of a cell.
    lines: usize,
}

impl Table {
    pub fn new<const N: usize>(header: [&str; N]) -> Self {
        let header = header.into_iter().map(|name| Cell::new(name, Tone::Faint)).collect();
        Self { header, rows: Vec::new(), lines: MOST_LINES }
    }

    /// Shows cells with all their lines, for text that no other command shows.
    pub fn whole(mut self) -> Self {
        self.lines = usize::MAX;
        self
    }

    pub fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(cells.into());
    }

    /// Renders the table as text, at most `width` columns wide.
    pub fn render(&self, width: Option<usize>) -> String {
        let widths = self.widths(width);
        let mut page = String::new();
        for row in std::iter::once(&self.header).chain(&self.rows) {
            let cells: Vec<(Vec<String>, Style)> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| (wrapped(&cell.text, *width, self.lines), cell.tone.style()))
                .collect();
            let height = cells.iter().map(|(lines, _)| lines.len()).max().unwrap_or(1);
            for index in 0..height {
                let mut line = String::new();
                for ((lines, style), width) in cells.iter().zip(&widths) {
                    let text = lines.get(index).map_or("", String::as_str);
                    let room = " ".repeat(width.saturating_sub(measure_text_width(text)));
                    line.push_str(&format!("{}{room}{GAP}", style.apply_to(text)));
                }
                page.push_str(line.trim_end());
                page.push('\n');
            }
        }
        page
    }

    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let mut widths = vec![0; self.header.len()];
        for row in std::iter::once(&self.header).chain(&self.rows) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = measure_text_width(&cell.text).max(*width);
            }
        }
        let Some(limit) = limit else { return widths };
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        let least: Vec<usize> =
            self.header.iter().map(|cell| measure_text_width(&cell.text).max(NARROWEST)).collect();
        while widths.iter().sum::<usize>() + gaps > limit {
            let spare = widths.iter_mut().zip(&least).filter(|(width, least)| **width > **least);
            let Some((widest, _)) = spare.max() else { break };
            *widest -= 1;
        }
        widths
    }
}

/// Wraps text to lines of at most `width` columns, between words if possible.
fn wrapped(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word = word.to_owned();
        loop {
            let line = lines.last_mut().expect("there is always a line");
            let used = measure_text_width(line) + usize::from(!line.is_empty());
            if used + measure_text_width(&word) <= width {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(&word);
                break;
            }
            if line.is_empty() {
                // A word longer than the column is split.
                let head = truncate_str(&word, width.max(1), "").into_owned();
                let head = if head.is_empty() { word.clone() } else { head };
                word = word[head.len()..].to_owned();
                *line = head;
                if word.is_empty() {
                    break;
                }
            }
            lines.push(String::new());
        }
    }
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = format!("{}…", truncate_str(last, width.saturating_sub(1), ""));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(["NAME", "DESCRIPTION"]);
        table.row(["a".into(), "one two three four five six seven eight nine ten eleven twelve".into()]);
        table.row(["日本".into(), "first line\nsecond line".into()]);
        table.row(["c".into(), "https://example.com/a/very/long/path".into()]);
        table
    }

    #[test]
    fn without_a_limit_a_row_is_a_line() {
        let expected = "NAME  DESCRIPTION\na     one two three four five six seven eight nine ten eleven twelve\n日本  first line\nc     https://example.com/a/very/long/path\n";
        assert_eq!(table().render(None), expected);
    }

    #[test]
    fn a_limit_is_kept_by_wrapping_and_cutting() {
        let page = table().render(Some(24));
        assert!(page.lines().all(|line| measure_text_width(line) <= 24), "{page}");
        assert!(
            page.contains("one two three") && page.contains('…') && page.contains("https://example.co"),
            "{page}"
        );
    }

    #[test]
    fn what_would_steer_a_terminal_is_escaped() {
        let mut table = Table::new(["A"]);
        table.row(["\u{1b}[31mred\u{7}\u{9b}x\u{202e}".into()]);
        assert_eq!(table.render(None), "A\n\\u{1b}[31mred\\u{7}\\u{9b}x\\u{202e}\n");
    }
}
