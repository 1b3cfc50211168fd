//! What a verification came to.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::super::output::{harmless, text_table};
use super::super::super::size::Size;
use super::finding::{Finding, Kind};

/// Findings that people see, of failures and of the rest each.
pub(super) const SHOWN: usize = 20;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) verified: bool,
    pub(super) listed_keys: u64,
    pub(super) listed_bytes: u64,
    pub(super) read_keys: u64,
    pub(super) read_bytes: u64,
    /// Findings that are failures.
    pub(super) failed: u64,
    /// How many findings of each kind.
    pub(super) findings: BTreeMap<Kind, u64>,
    /// Of the sample; null if all keys were read.
    pub(super) seed: Option<u64>,
    pub(super) seconds: f64,
}

/// The first findings.
#[derive(Debug, Default)]
pub(super) struct Told {
    failures: Vec<Finding>,
    others: Vec<Finding>,
}

impl Told {
    pub(super) fn keep(&mut self, finding: Finding) {
        let list = match finding.kind.is_failure() {
            true => &mut self.failures,
            false => &mut self.others,
        };
        if list.len() < SHOWN {
            list.push(finding);
        }
    }
}

impl Report {
    pub(super) fn new(seed: Option<u64>) -> Self {
        Self {
            verified: true,
            listed_keys: 0,
            listed_bytes: 0,
            read_keys: 0,
            read_bytes: 0,
            failed: 0,
            findings: BTreeMap::new(),
            seed,
            seconds: 0.,
        }
    }

    pub(super) fn count(&mut self, kind: Kind, findings: u64) {
        if findings == 0 {
            return;
        }
        *self.findings.entry(kind).or_default() += findings;
        if kind.is_failure() {
            self.failed += findings;
            self.verified = false;
        }
    }

    pub(super) fn to_text(&self, told: &Told) -> String {
        let mut text = String::new();
        for (findings, title) in [
            (&told.failures, "Failures"),
            (&told.others, "Also found, no failures"),
        ] {
            if !findings.is_empty() {
                let all = self.of(title == "Failures");
                text.push_str(&format!("{title}, {} of {all}:\n", findings.len()));
                text.push_str(&findings_table(findings));
                text.push_str("\n\n");
            }
        }
        text.push_str(&format!(
            "Read {} of {} keys, {} of {}, in {:.1} s",
            self.read_keys,
            self.listed_keys,
            Size(self.read_bytes),
            Size(self.listed_bytes),
            self.seconds
        ));
        if let Some(seed) = self.seed.filter(|_| self.read_keys < self.listed_keys) {
            text.push_str(&format!(" (--seed {seed} chooses them again)"));
        }
        text.push_str(&match self.failed {
            0 => ".\nAll verified.".to_owned(),
            failed => format!(".\nNOT VERIFIED: {failed} keys are not what they should be."),
        });
        text
    }

    fn of(&self, failures: bool) -> u64 {
        let findings = self.findings.iter();
        findings
            .filter(|(kind, _)| kind.is_failure() == failures)
            .map(|(_, count)| count)
            .sum()
    }
}

fn findings_table(findings: &[Finding]) -> String {
    let row = |finding: &Finding| {
        vec![
            finding.kind.text().to_owned(),
            harmless(&finding.path),
            harmless(&finding.detail),
        ]
    };
    let rows: Vec<_> = findings.iter().map(row).collect();
    text_table(&["what", "object", "detail"], &rows)
}
