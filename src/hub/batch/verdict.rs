//! Whether a report can be true, and what it says then.

use std::collections::{HashMap, HashSet};

use crate::hub::wire::BatchReport;

/// What a report says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Done,
    /// Failed paths, with the reasons.
    Partial(HashMap<String, String>),
    /// It contradicts itself, or the request.
    Inconsistent(String),
}

pub(super) fn judge(report: &BatchReport, sent: &HashSet<&str>) -> Verdict {
    let inconsistent = |what: String| Verdict::Inconsistent(what);
    let failed = report.failed.len();
    if report.processed != sent.len() as u64 {
        return inconsistent(format!(
            "{} operations were sent, but the report is about {}",
            sent.len(),
            report.processed
        ));
    }
    if report.succeeded.checked_add(failed as u64) != Some(report.processed) {
        return inconsistent(format!(
            "the report counts {} successes and names {failed} failures out of {}",
            report.succeeded, report.processed
        ));
    }
    let mut reasons = HashMap::new();
    for op in &report.failed {
        if !sent.contains(op.path.as_str()) {
            return inconsistent(format!(
                "the report names a path that was not sent, '{}'",
                op.path
            ));
        }
        if reasons.insert(op.path.clone(), op.error.clone()).is_some() {
            return inconsistent(format!("the report names '{}' twice", op.path));
        }
    }
    match (report.success, reasons.is_empty()) {
        (true, true) => Verdict::Done,
        (false, true) => inconsistent("the report says failure but names none".to_owned()),
        (_, false) => Verdict::Partial(reasons),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::batch::tests::report;

    fn verdict(report: &BatchReport) -> Verdict {
        judge(report, &HashSet::from(["a", "b", "c"]))
    }

    #[test]
    fn a_sound_report_is_believed() {
        assert_eq!(verdict(&report(true, 3, 3, &[])), Verdict::Done);
        let reasons = HashMap::from([("b".to_owned(), "no".to_owned())]);
        for success in [false, true] {
            let report = report(success, 3, 2, &[("b", "no")]);
            assert_eq!(verdict(&report), Verdict::Partial(reasons.clone()));
        }
    }

    #[test]
    fn a_report_that_contradicts_itself_or_the_request_is_not() {
        for (report, expected) in [
            (report(true, 2, 2, &[]), "3 operations were sent"),
            (
                report(true, 3, 2, &[]),
                "counts 2 successes and names 0 failures",
            ),
            (report(false, 3, 3, &[("a", "x")]), "counts 3 successes"),
            (report(false, 3, u64::MAX, &[("a", "x")]), "counts"),
            (report(false, 3, 2, &[("z", "x")]), "not sent, 'z'"),
            (report(false, 3, 1, &[("a", "x"), ("a", "y")]), "'a' twice"),
            (report(false, 3, 3, &[]), "names none"),
        ] {
            match verdict(&report) {
                Verdict::Inconsistent(what) => assert!(what.contains(expected), "{what}"),
                other => panic!("{report:?}: {other:?}"),
            }
        }
    }
}
