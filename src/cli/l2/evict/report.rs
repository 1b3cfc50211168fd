//! What would go, and what went.

use hfbucket::l2::{DeleteOutcome, L2Error, ObjectKey};
use serde::Serialize;

use super::super::super::Stop;
use super::super::super::output::Output;
use super::super::super::size::Size;
use super::super::show::{KeyRecord, KeyTable};

/// Keys that a plan names.
pub(super) const FIRST: usize = 20;

/// What would be deleted.
#[derive(Debug, Default, Serialize)]
pub(super) struct Plan {
    pub(super) objects: u64,
    pub(super) bytes: u64,
    /// The first of them, in the order of their deletion.
    pub(super) first: Vec<KeyRecord>,
}

impl Plan {
    /// Names a key, if it is one of the first; it is counted elsewhere.
    pub(super) fn name(&mut self, key: &ObjectKey, size: u64) {
        if self.first.len() < FIRST {
            let key = key.clone();
            self.first.push(KeyRecord { key, size });
        }
    }

    pub(super) fn tell_dry_run(&self, output: &Output) -> Result<(), Stop> {
        #[derive(Serialize)]
        struct DryRun<'a> {
            dry_run: bool,
            #[serde(flatten)]
            plan: &'a Plan,
        }
        output.record(&DryRun {
            dry_run: true,
            plan: self,
        })?;
        output.line(format!(
            "Would delete {} objects, {}. Nothing was deleted.",
            self.objects,
            Size(self.bytes)
        ))?;
        if !self.first.is_empty() {
            output.line(self.first_text())?;
        }
        Ok(())
    }

    /// The first keys as a table, and how many more there are.
    pub(super) fn first_text(&self) -> String {
        let mut text = KeyTable::default().lines(&self.first).join("\n");
        let more = self.objects.saturating_sub(self.first.len() as u64);
        if more > 0 {
            text.push_str(&format!("\nand {more} more"));
        }
        text
    }
}

/// What was deleted.
#[derive(Debug, Default, Serialize)]
pub(super) struct Outcome {
    pub(super) dry_run: bool,
    pub(super) deleted: u64,
    pub(super) deleted_bytes: u64,
    pub(super) failed: u64,
    pub(super) locked: u64,
    /// Bytes that are left in the pool.
    pub(super) used_bytes: u64,
    /// Whether the pool is as empty as it should be.
    pub(super) done: bool,
    pub(super) first_error: Option<String>,
}

impl Outcome {
    pub(super) fn count(&mut self, outcome: &DeleteOutcome, size: u64) {
        match outcome {
            DeleteOutcome::Deleted { .. } => {
                self.deleted += 1;
                self.deleted_bytes = self.deleted_bytes.saturating_add(size);
            }
            DeleteOutcome::Locked => self.locked += 1,
            DeleteOutcome::Failed(error) => self.fail(error),
            // An outcome that this command does not know is not known to be a success.
            _ => self.failed += 1,
        }
    }

    fn fail(&mut self, error: &L2Error) {
        self.failed += 1;
        self.first_error.get_or_insert_with(|| error.to_string());
    }

    /// Prints the report; fails if something is left that should have gone.
    pub(super) fn tell(&self, output: &Output) -> Result<(), Stop> {
        output.record(self)?;
        output.line(format!(
            "Deleted {} objects, {}; {} could not be deleted, {} are locked. {} are left.",
            self.deleted,
            Size(self.deleted_bytes),
            self.failed,
            self.locked,
            Size(self.used_bytes)
        ))?;
        if self.done {
            return Ok(());
        }
        if let Some(error) = &self.first_error {
            output.line(format!("The first failure: {error}"))?;
        }
        output.line("NOT DONE: more should have gone.")?;
        Err(Stop::Unverified)
    }
}
