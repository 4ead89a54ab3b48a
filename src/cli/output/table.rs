//! Tables with aligned columns. On a terminal, text is wrapped between words to fit; where that is not enough, the last
//! columns are left out. The first column is always whole, so that names and URIs can be copied. In a pipe, each row is
//! one line.

use console::{Style, measure_text_width, truncate_str};

use super::terminal::printable;

const GAP: &str = "  ";
/// Smallest width of a column; a longer header keeps it wider.
const NARROWEST: usize = 8;
/// The longest word for which a column is kept wide enough; longer ones are cut.
const LONGEST_WORD: usize = 40;
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
            // Columns without a width are left out.
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

    /// The widths of the columns that are shown.
    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let mut widths = self.measure(measure_text_width);
        let Some(limit) = limit else { return widths };
        let mut least = self.measure(|text| {
            let words = text.split(' ').map(measure_text_width);
            words.max().unwrap_or(0).min(LONGEST_WORD)
        });
        for (index, (least, header)) in least.iter_mut().zip(&self.header).enumerate() {
            let narrowest = if index == 0 { widths[0] } else { NARROWEST.min(widths[index]) };
            *least = narrowest.max(*least).max(measure_text_width(&header.text));
        }
        let fits = |widths: &[usize]| {
            widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1) <= limit
        };
        while least.len() > 1 && !fits(&least) {
            least.pop();
        }
        widths.truncate(least.len());
        while !fits(&widths) {
            let spare = widths.iter_mut().zip(&least).filter(|(width, least)| **width > **least);
            let Some((widest, _)) = spare.max() else { break };
            *widest -= 1;
        }
        widths
    }

    /// The largest measure in each column.
    fn measure(&self, of: impl Fn(&str) -> usize) -> Vec<usize> {
        let mut measures = vec![0; self.header.len()];
        for row in std::iter::once(&self.header).chain(&self.rows) {
            for (measure, cell) in measures.iter_mut().zip(row) {
                *measure = of(&cell.text).max(*measure);
            }
        }
        measures
    }
}

/// Wraps text to lines of at most `width` columns, between words. A word that is longer is cut.
fn wrapped(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        loop {
            let line = lines.last_mut().expect("there is always a line");
            let used = measure_text_width(line) + usize::from(!line.is_empty());
            if used + measure_text_width(word) <= width {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
                break;
            }
            if line.is_empty() {
                *line = truncate_str(word, width, "…").into_owned();
                break;
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
    fn a_limit_is_kept_by_wrapping_and_no_word_is_broken() {
        let page = table().render(Some(44));
        assert!(page.lines().all(|line| measure_text_width(line) <= 44), "{page}");
        assert!(page.contains("one two three four five six seven\n"), "{page}");
        assert!(page.contains("https://example.com/a/very/long/path"), "{page}");
        let mut long = Table::new(["A", "B"]);
        long.row(["a".into(), "one two three four five six seven eight nine ten eleven twelve".into()]);
        let page = long.render(Some(11));
        assert!(page.lines().count() == 4 && page.contains('…'), "{page}");
    }

    #[test]
    fn the_last_columns_are_left_out_before_a_name_is_broken() {
        assert_eq!(table().render(Some(24)), "NAME\na\n日本\nc\n");
        let mut table = Table::new(["URI", "NAME", "DESCRIPTION"]);
        table.row(["file:///a/long/path/to/a/file.txt".into(), "file".into(), "What it is".into()]);
        assert_eq!(
            table.render(Some(40)),
            "URI                                NAME\nfile:///a/long/path/to/a/file.txt  file\n"
        );
        assert!(table.render(Some(10)).contains("file:///a/long/path/to/a/file.txt"), "never broken");
        assert!(table.render(Some(53)).contains("What it is"));
    }

    #[test]
    fn a_word_that_is_too_long_for_any_column_is_cut() {
        let mut table = Table::new(["NAME", "NOTE"]);
        table.row(["a".into(), "x".repeat(100).into()]);
        let page = table.render(Some(60));
        assert!(page.lines().all(|line| measure_text_width(line) <= 60) && page.contains("x…"), "{page}");
    }

    #[test]
    fn what_would_steer_a_terminal_is_escaped() {
        let mut table = Table::new(["A"]);
        table.row(["\u{1b}[31mred\u{7}\u{9b}x\u{202e}".into()]);
        assert_eq!(table.render(None), "A\n\\u{1b}[31mred\\u{7}\\u{9b}x\\u{202e}\n");
    }
}
