//! Keys, as people and machines see them, and as people choose them.

use hfbucket::l2::{KeyEntry, ObjectKey};
use serde::Serialize;

use super::super::output::harmless;

/// A key and its object's size, on one level.
#[derive(Debug, Serialize)]
pub(super) struct KeyRecord {
    #[serde(flatten)]
    pub(super) key: ObjectKey,
    pub(super) size: u64,
}

impl From<KeyEntry> for KeyRecord {
    fn from(entry: KeyEntry) -> Self {
        Self {
            key: entry.key,
            size: entry.size,
        }
    }
}

const COLUMNS: [&str; 6] = ["model", "rank", "group", "hash", "salt", "size"];

/// A key for people; the size is exact, since sizes are compared.
fn cells(record: &KeyRecord) -> [String; 6] {
    let key = &record.key;
    [
        filled(key.model_name()),
        format!("{:08x}", key.kv_rank()),
        format!("{:x}", key.object_group_id()),
        filled(&hex(key.chunk_hash())),
        filled(key.cache_salt()),
        record.size.to_string(),
    ]
}

/// An empty field would shift those after it for whoever splits lines at blanks.
fn filled(text: &str) -> String {
    match text {
        "" => "-".to_owned(),
        text => harmless(text),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A table that is printed while it comes: a column is as wide as it had to be so far.
#[derive(Debug, Default)]
pub(super) struct KeyTable {
    widths: [usize; COLUMNS.len()],
    begun: bool,
}

impl KeyTable {
    /// The next lines, the header before the first.
    pub(super) fn lines(&mut self, records: &[KeyRecord]) -> Vec<String> {
        let mut rows: Vec<[String; COLUMNS.len()]> = Vec::with_capacity(records.len() + 1);
        if !self.begun && !records.is_empty() {
            self.begun = true;
            rows.push(COLUMNS.map(str::to_owned));
        }
        rows.extend(records.iter().map(cells));
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        rows.iter().map(|row| self.line(row)).collect()
    }

    /// All columns but the last, which is a number, begin at the left.
    fn line(&self, row: &[String; COLUMNS.len()]) -> String {
        let last = COLUMNS.len() - 1;
        let cells = row.iter().zip(self.widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column == last {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        cells.collect::<Vec<_>>().join("  ")
    }
}

/// Which keys are meant. Without either: all.
#[derive(Debug, clap::Args)]
pub(super) struct Filter {
    /// Only keys of this model
    #[arg(long, value_name = "NAME", value_parser = model)]
    pub(super) model: Option<String>,
    /// Only keys under this salt; "" for those without one
    #[arg(long, value_parser = salt)]
    pub(super) salt: Option<String>,
}

impl Filter {
    pub(super) fn takes(&self, key: &ObjectKey) -> bool {
        let is = |wanted: &Option<String>, field: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == field)
        };
        is(&self.model, key.model_name()) && is(&self.salt, key.cache_salt())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.model.is_none() && self.salt.is_none()
    }
}

/// A name that no key can have would silently match nothing.
fn model(text: &str) -> Result<String, String> {
    ObjectKey::new(text, 0, [])
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}

fn salt(text: &str) -> Result<String, String> {
    ObjectKey::new("", 0, [])
        .and_then(|key| key.with_cache_salt(text))
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}
