//! Changing entries: what goes into which request, and what its answer is worth.
//!
//! A batch is not a transaction, and 200 does not mean that all is done: the report says what
//! failed, and single operations have been seen to get lost under a 200. [`settle`] finds out per
//! path. It knows nothing of HTTP, which is behind [`BatchWire`].

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::error::{Error, ErrorKind, Tries};
use super::retry::{Backoff, RetryPolicy, wait_within};
use super::types::BatchOp;
use super::wire::BatchReport;

mod http;
mod plan;
mod verdict;

pub(super) use http::HttpWire;
use plan::plan;
use verdict::{Verdict, judge};

#[cfg(test)]
mod tests;

/// How often failed operations are sent, the first time included, and the waits between.
const TRIES: usize = 3;
const FIRST_WAIT: Duration = Duration::from_secs(2);

/// What became of one request.
#[derive(Debug)]
pub(super) enum Sent {
    /// A report, under 200 or 422. `context` carries call, status and request id.
    Report { report: BatchReport, context: Error },
    /// The work may be done: no answer, a 5xx, or one that cannot be read.
    Unknown {
        error: Error,
        /// How long the server asked to be left alone.
        wait: Option<Duration>,
    },
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

type Outcome = Result<(), Error>;

/// Sends all operations and says what became of each, in the order given.
pub(super) async fn settle(
    wire: &dyn BatchWire,
    policy: &RetryPolicy,
    ops: &[BatchOp],
) -> Result<Vec<Outcome>, Error> {
    let mut outcomes: Vec<Option<Outcome>> = ops.iter().map(|_| None).collect();
    let mut stopped = None;
    let mut chunks = plan(ops).into_iter();
    for chunk in &mut chunks {
        let mut chunk = Chunk {
            wire,
            policy,
            ops,
            outcomes: &mut outcomes,
            start: Instant::now(),
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
    if let Some(error) = &stopped {
        if outcomes.iter().all(Option::is_none) {
            return Err(error.clone());
        }
        for index in chunks.flatten() {
            let message = format!("not sent, as an earlier part failed: {}", error.message());
            let cause = error.clone().with_message(message.as_str());
            outcomes[index] = Some(Err(cause.at_path(ops[index].path())));
        }
    }
    let rest = stopped.unwrap_or_else(|| Error::new(ErrorKind::Protocol, "not sent"));
    let outcomes = ops.iter().zip(outcomes);
    Ok(outcomes
        .map(|(op, outcome)| outcome.unwrap_or_else(|| Err(rest.clone().at_path(op.path()))))
        .collect())
}

/// One request's worth of operations, until each has an outcome.
struct Chunk<'a> {
    wire: &'a dyn BatchWire,
    policy: &'a RetryPolicy,
    ops: &'a [BatchOp],
    outcomes: &'a mut [Option<Outcome>],
    start: Instant,
    deadline: Instant,
    /// Indexes of what has no outcome yet.
    pending: Vec<usize>,
}

impl Chunk<'_> {
    /// `Err` if the pending ones have no outcome of their own but this error.
    async fn settle(&mut self) -> Result<(), Error> {
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
                Sent::Unknown { error, wait } => {
                    unknowns += 1;
                    warn!(%error, ops = ops.len(), "answer to a batch is lost: checking");
                    // The Hub may still be at it, so the wait comes before the look.
                    let own = backoff.next();
                    let wait = wait_within(wait.unwrap_or(own), self.deadline).await;
                    self.check(&error).await?;
                    if self.pending.is_empty() {
                        break;
                    }
                    let tries = Tries {
                        attempts,
                        elapsed: self.start.elapsed(),
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
            elapsed: self.start.elapsed(),
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
        self.conclude(|op| Some(Err(error.clone().at_path(op.path()))));
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

fn partial_failure(op: &BatchOp, reason: &str, context: &Error, tries: Tries) -> Error {
    let kind = match context.status() {
        // All failed, or the operations are invalid.
        Some(422) => ErrorKind::Invalid,
        _ => ErrorKind::Server,
    };
    context
        .clone()
        .with_kind(kind)
        .with_message(format!("the Hub did not {} it: {reason}", op.verb()))
        .after(tries)
        .at_path(op.path())
}
