//! A progress line on standard error, shown while a command waits and erased afterwards. Without a terminal, each new
//! text is printed as a line of its own.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use console::{Term, truncate_str};
use tokio::task::JoinHandle;

use super::terminal::{message, printable};

const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const PACE: Duration = Duration::from_millis(100);
const BAR: usize = 20;

/// Draws which part of something is done, from 0 to 1: `██████░░░░░░░░░░░░░░  30%`. `None` without a terminal.
pub fn bar(part: f64) -> Option<String> {
    std::io::stderr().is_terminal().then(|| draw_bar(part))
}

fn draw_bar(part: f64) -> String {
    let part = part.clamp(0.0, 1.0);
    // Between 0 and `BAR`.
    let filled = (part * BAR as f64).round() as usize;
    format!("{}{} {:>3}%", "█".repeat(filled), "░".repeat(BAR - filled), (part * 100.0).round())
}

pub struct Spinner {
    text: Arc<Mutex<String>>,
    drawing: Option<JoinHandle<()>>,
}

impl Spinner {
    /// Starts a spinner that shows the text and the elapsed time.
    pub fn start(text: &str) -> Self {
        let since = Instant::now();
        Self::draw(text, move || match since.elapsed().as_secs() {
            0..=1 => String::new(),
            seconds => format!(" ({seconds} s)"),
        })
    }

    /// Starts a spinner that shows the text and the remaining time.
    pub fn countdown(text: &str, limit: Duration) -> Self {
        let end = Instant::now() + limit;
        Self::draw(text, move || {
            let left = end.saturating_duration_since(Instant::now()).as_secs();
            format!(" ({}:{:02} left)", left / 60, left % 60)
        })
    }

    fn draw(text: &str, clock: impl Fn() -> String + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(printable(text)));
        let shown = text.clone();
        let drawing = std::io::stderr().is_terminal().then(|| {
            tokio::spawn(async move {
                for frame in FRAMES.iter().cycle() {
                    let line = format!("{frame} {}{}", current(&shown), clock());
                    let columns = usize::from(Term::stderr().size().1).saturating_sub(1);
                    let _ = write!(std::io::stderr(), "\r{}\x1b[K", truncate_str(&line, columns, "…"));
                    tokio::time::sleep(PACE).await;
                }
            })
        });
        Self { text, drawing }
    }

    /// Replaces the text.
    pub fn tell(&self, text: &str) {
        let text = printable(text).replace('\n', " ");
        if self.drawing.is_none() {
            message(&text);
        }
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if let Some(drawing) = self.drawing.take() {
            drawing.abort();
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn current(text: &Mutex<String>) -> String {
    text.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_the_part_that_is_done() {
        assert_eq!(draw_bar(0.3), "██████░░░░░░░░░░░░░░  30%");
        assert_eq!(draw_bar(7.0), "████████████████████ 100%");
        assert_eq!(draw_bar(-1.0), "░░░░░░░░░░░░░░░░░░░░   0%");
    }
}
