//! What people and machines see. Results go to stdout, everything else to stderr.

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

pub(super) struct Output {
    json: bool,
    quiet: bool,
}

impl Output {
    pub(super) fn new(json: bool, quiet: bool) -> Self {
        Self { json, quiet }
    }

    /// A line for people.
    pub(super) fn line(&self, text: impl AsRef<str>) -> io::Result<()> {
        if self.json || self.quiet {
            return Ok(());
        }
        print(text.as_ref())
    }

    /// A note for people that is no result.
    pub(super) fn note(&self, text: impl AsRef<str>) {
        if !self.json && !self.quiet {
            eprintln!("{}", text.as_ref());
        }
    }

    /// Many lines for people at once: a system call per line would be what a long list waits for.
    pub(super) fn lines(&self, lines: &[String]) -> io::Result<()> {
        if self.json || self.quiet || lines.is_empty() {
            return Ok(());
        }
        print(&lines.join("\n"))
    }

    /// As many lines of JSON for machines at once.
    pub(super) fn records(&self, values: &[impl Serialize]) -> io::Result<()> {
        if !self.json || values.is_empty() {
            return Ok(());
        }
        let lines = values.iter().map(serde_json::to_string);
        print(&lines.collect::<Result<Vec<_>, _>>()?.join("\n"))
    }

    /// Whether machines read the results.
    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// One line of JSON for machines.
    pub(super) fn record(&self, value: &impl Serialize) -> io::Result<()> {
        if !self.json {
            return Ok(());
        }
        print(&serde_json::to_string(value)?)
    }

    /// The error and its causes, each said once.
    pub(super) fn error(&self, error: &dyn Error) {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let more = error.to_string();
            // Many errors repeat their cause in their own words.
            if !text.contains(&more) {
                text.push_str(": ");
                text.push_str(&more);
            }
            cause = error.source();
        }
        eprintln!("error: {text}");
    }

    /// A bar over `bytes`, hidden where nobody would see it move.
    pub(super) fn bar(&self, bytes: u64, message: &'static str) -> ProgressBar {
        if self.is_unwatched() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template(
            "{msg:10} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} ETA {eta}",
        )
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
        let bar = ProgressBar::new(bytes)
            .with_style(style)
            .with_message(message);
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }

    /// A line that moves while something of unknown length goes on; hidden as bars are.
    pub(super) fn spinner(&self) -> ProgressBar {
        if self.is_unwatched() {
            return ProgressBar::hidden();
        }
        let spinner = ProgressBar::new_spinner();
        spinner.enable_steady_tick(Duration::from_millis(200));
        spinner
    }

    fn is_unwatched(&self) -> bool {
        self.json || self.quiet || !io::stderr().is_terminal()
    }
}

/// Unlike `println!`, which panics when the reader has gone away (`| head`).
fn print(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

/// Whether nobody reads the output any more, which is no failure of ours.
pub(super) fn is_reader_gone(error: &(dyn Error + 'static)) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// A text of somebody else's, such as an object's name, without what a terminal would obey.
pub(super) fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// A table without colours, so that there is nothing for `NO_COLOR` to switch off. All columns but the
/// first are numbers.
pub(super) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    aligned_table(header, rows, |column| match column {
        0 => CellAlignment::Left,
        _ => CellAlignment::Right,
    })
}

/// The same with text in all columns.
pub(super) fn text_table(header: &[&str], rows: &[Vec<String>]) -> String {
    aligned_table(header, rows, |_| CellAlignment::Left)
}

fn aligned_table(
    header: &[&str],
    rows: &[Vec<String>],
    alignment: impl Fn(usize) -> CellAlignment,
) -> String {
    let mut table = Table::new();
    table
        .load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    for row in rows {
        let cells = row.iter().enumerate();
        table.add_row(cells.map(|(column, text)| Cell::new(text).set_alignment(alignment(column))));
    }
    table.to_string()
}

/// `RUST_LOG` decides; without it nothing is logged.
pub(super) fn log_to_stderr() {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::builder()
                .with_default_directive(tracing_subscriber::filter::LevelFilter::OFF.into())
                .from_env_lossy(),
        )
        .with_ansi(!no_color && io::stderr().is_terminal())
        .with_writer(io::stderr)
        .init();
}
