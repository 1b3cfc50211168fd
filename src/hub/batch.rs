//! Changing entries: what goes into which request, and what its answer is worth.
//!
//! A batch is not a transaction, and 200 does not mean that all is done: the report says what
//! failed, and single operations have been seen to get lost under a 200. [`settle`] finds out per
//! path. It knows nothing of HTTP, which is behind [`BatchWire`].

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::error::{Error, ErrorKind, Tries};
use super::retry::{Backoff, RetryPolicy, wait_within};
use super::types::{BatchOp, OpError};
use super::wire::BatchReport;

mod http;
pub(super) use http::HttpWire;

#[cfg(test)]
mod tests;

/// Operations per request: what the Hub's own clients send. The server documents no limit.
const CHUNK: usize = 1000;

/// How often failed operations are sent, the first time included, and the waits between.
const TRIES: usize = 3;
const FIRST_WAIT: Duration = Duration::from_secs(2);

/// What became of one request.
#[derive(Debug)]
pub(super) enum Sent {
    /// A report, under 200 or 422. `context` carries call, status and request id.
    Report { report: BatchReport, context: Error },
    /// The work may be done: no answer, a 5xx, or one that cannot be read.
    Unknown(Error),
    /// The Hub refused all of it, or it never got there.
    Refused(Error),
}

/// The two requests that settling needs.
#[async_trait]
pub(super) trait BatchWire: Send + Sync {
    /// Sends operations on distinct paths, additions before deletions. Repeats nothing that may be
    /// done. Over by `deadline`.
    async fn send(&self, ops: &[&BatchOp], deadline: Instant) -> Sent;

    /// The entries at these paths, with their hashes; missing paths are absent.
    async fn look(&self, paths: &[String]) -> Result<HashMap<String, Option<String>>, Error>;
}

type Outcome = Result<(), OpError>;

/// Sends all operations and says what became of each, in the order given.
pub(super) async fn settle(
    wire: &dyn BatchWire,
    policy: &RetryPolicy,
    ops: &[BatchOp],
) -> Result<Vec<Outcome>, Error> {
    let mut outcomes: Vec<Option<Outcome>> = ops.iter().map(|_| None).collect();
    let mut stopped = None;
    for chunk in plan(ops) {
        let mut chunk = Chunk {
            wire,
            policy,
            ops,
            outcomes: &mut outcomes,
            deadline: policy.deadline(),
            pending: chunk,
        };
        // What is left undone, or may still be on its way, bars the later operations: they could
        // overtake it on the same path.
        if let Err(error) = chunk.settle().await {
            stopped = Some(error);
            break;
        }
    }
    let Some(error) = stopped else {
        return Ok(finished(ops, outcomes, &not_sent()));
    };
    if outcomes.iter().all(Option::is_none) {
        return Err(error);
    }
    Ok(finished(ops, outcomes, &error))
}

fn finished(ops: &[BatchOp], outcomes: Vec<Option<Outcome>>, rest: &Error) -> Vec<Outcome> {
    let outcomes = ops.iter().zip(outcomes);
    outcomes
        .map(|(op, outcome)| {
            outcome.unwrap_or_else(|| Err(OpError::new(op.path(), rest.message(), rest.clone())))
        })
        .collect()
}

fn not_sent() -> Error {
    Error::new(ErrorKind::Protocol, "the operation was not sent")
}

/// Cuts a batch into requests: at most [`CHUNK`] operations each, no path twice in one, additions
/// before deletions.
///
/// Reports name paths, not lines, and what the Hub does with one path twice is not documented. So
/// the second operation on a path goes into a later request than the first, which also keeps their
/// order. Paths are independent of each other, so the rest may move.
fn plan(ops: &[BatchOp]) -> Vec<Vec<usize>> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let mut waves: Vec<Vec<usize>> = Vec::new();
    for (index, op) in ops.iter().enumerate() {
        let earlier = seen.entry(op.path()).or_default();
        if *earlier == waves.len() {
            waves.push(Vec::new());
        }
        waves[*earlier].push(index);
        *earlier += 1;
    }
    let mut chunks: Vec<Vec<usize>> = Vec::new();
    for wave in waves {
        chunks.extend(wave.chunks(CHUNK).map(<[usize]>::to_vec));
    }
    for chunk in &mut chunks {
        // Stable, so that the order among additions and among deletions stays.
        chunk.sort_by_key(|index| ops[*index].is_delete());
    }
    chunks
}

/// What a report says.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Done,
    /// Failed paths, with the reasons.
    Partial(HashMap<String, String>),
    /// It contradicts itself, or the request.
    Inconsistent(String),
}

fn judge(report: &BatchReport, sent: &HashSet<&str>) -> Verdict {
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

/// One request's worth of operations, until each has an outcome.
struct Chunk<'a> {
    wire: &'a dyn BatchWire,
    policy: &'a RetryPolicy,
    ops: &'a [BatchOp],
    outcomes: &'a mut [Option<Outcome>],
    deadline: Instant,
    /// Indexes of what has no outcome yet.
    pending: Vec<usize>,
}

impl Chunk<'_> {
    /// `Err` if the pending ones have no outcome of their own but this error.
    async fn settle(&mut self) -> Result<(), Error> {
        let start = Instant::now();
        let mut backoff = Backoff::new(self.policy);
        let mut unknowns = 0;
        let mut reports = 0;
        let mut attempts = 0;
        while !self.pending.is_empty() {
            attempts += 1;
            let ops: Vec<_> = self.pending.iter().map(|index| &self.ops[*index]).collect();
            match self.wire.send(&ops, self.deadline).await {
                Sent::Refused(error) => return Err(error),
                Sent::Report { report, context } => {
                    reports += 1;
                    self.take(&report, &context, reports).await?;
                }
                Sent::Unknown(error) => {
                    unknowns += 1;
                    warn!(%error, ops = ops.len(), "answer to a batch is lost: checking");
                    // The Hub may still be at it, so the wait comes before the look.
                    let wait = wait_within(backoff.next(), self.deadline).await;
                    self.check(&error).await?;
                    if self.pending.is_empty() {
                        break;
                    }
                    let tries = Tries {
                        attempts,
                        elapsed: start.elapsed(),
                        refused_wait: wait.err(),
                    };
                    if unknowns > self.policy.max_retries || tries.refused_wait.is_some() {
                        return Err(error.after(tries));
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes a report; afterwards `pending` is what is worth sending again.
    async fn take(
        &mut self,
        report: &BatchReport,
        context: &Error,
        tries: usize,
    ) -> Result<(), Error> {
        let sent = self.pending.iter().map(|index| self.ops[*index].path());
        match judge(report, &sent.collect()) {
            Verdict::Done => {
                self.conclude(|_| Some(Ok(())));
                Ok(())
            }
            Verdict::Inconsistent(what) => self.distrust(report, &what, context).await,
            Verdict::Partial(reasons) => {
                self.conclude(|op| (!reasons.contains_key(op.path())).then_some(Ok(())));
                self.again(&reasons, context, tries).await;
                Ok(())
            }
        }
    }

    /// After a partial failure: drops deletions of what is not there, and waits for the next try.
    async fn again(&mut self, reasons: &HashMap<String, String>, context: &Error, tries: usize) {
        debug!(failed = self.pending.len(), tries, "batch failed in part");
        // What the Hub answers to the deletion of a missing path is not documented. If it is a
        // failure, the entry's absence is still what was asked for, and three tries do not help.
        let is_delete = |index: &usize| self.ops[*index].is_delete();
        if self.pending.iter().any(is_delete)
            && let Ok(entries) = self.look(is_delete).await
        {
            self.conclude(|op| {
                (op.is_delete() && !entries.contains_key(op.path())).then_some(Ok(()))
            });
        }
        let wait = FIRST_WAIT * (1 << (tries - 1).min(8));
        let refused = if tries >= TRIES || self.pending.is_empty() {
            None
        } else {
            match wait_within(wait, self.deadline).await {
                Ok(()) => return,
                Err(refused) => Some(refused),
            }
        };
        let count = Tries {
            attempts: tries,
            elapsed: Duration::ZERO,
            refused_wait: refused,
        };
        self.conclude(|op| {
            let reason = reasons.get(op.path()).map_or("", String::as_str);
            Some(Err(partial_failure(op, reason, context, count)))
        });
    }

    /// After a report that cannot be true: what the bucket shows to be done is done, the rest is an
    /// error. Not sent again, as it is unknown what the Hub made of it.
    async fn distrust(
        &mut self,
        report: &BatchReport,
        what: &str,
        context: &Error,
    ) -> Result<(), Error> {
        let mut message = format!("the batch report cannot be true: {what}");
        for op in report.failed.iter().take(3) {
            message.push_str(&format!("; '{}': {}", op.path, op.error));
        }
        warn!(%message, "checking a batch");
        let error = context.clone().with_message(message.as_str());
        self.check(&error).await?;
        self.conclude(|op| {
            Some(Err(OpError::new(
                op.path(),
                message.as_str(),
                error.clone(),
            )))
        });
        Ok(())
    }

    /// Concludes what the bucket shows to be done. If it cannot be asked, nothing is known.
    async fn check(&mut self, error: &Error) -> Result<(), Error> {
        match self.look(|_| true).await {
            Ok(entries) => {
                self.conclude(|op| {
                    let entry = entries.get(op.path());
                    // An entry without a hash is there, but shows nothing.
                    let hash = entry.map(|hash| hash.as_deref().unwrap_or(""));
                    op.is_done_by(hash).then_some(Ok(()))
                });
                Ok(())
            }
            Err(failed) => {
                let message = format!(
                    "{}; whether it was done could not be checked either: {failed}",
                    error.message()
                );
                Err(error.clone().with_message(message))
            }
        }
    }

    async fn look(
        &self,
        which: impl Fn(&usize) -> bool,
    ) -> Result<HashMap<String, Option<String>>, Error> {
        let indexes = self.pending.iter().filter(|index| which(index));
        let paths: Vec<_> = indexes
            .map(|index| self.ops[*index].path().to_owned())
            .collect();
        self.wire.look(&paths).await
    }

    /// Gives the pending ones the outcome that `outcome` has for them, and keeps the others.
    fn conclude(&mut self, outcome: impl Fn(&BatchOp) -> Option<Outcome>) {
        let (ops, outcomes) = (self.ops, &mut *self.outcomes);
        self.pending.retain(|index| {
            outcomes[*index] = outcome(&ops[*index]);
            outcomes[*index].is_none()
        });
    }
}

fn partial_failure(op: &BatchOp, reason: &str, context: &Error, tries: Tries) -> OpError {
    let kind = match context.status() {
        // All failed, or the operations are invalid.
        Some(422) => ErrorKind::Invalid,
        _ => ErrorKind::Server,
    };
    let cause = context
        .clone()
        .with_kind(kind)
        .with_message(format!("the Hub did not {} it: {reason}", op.verb()))
        .after(tries);
    OpError::new(op.path(), reason, cause)
}
