//! Settlement against a bucket that is a map, with scripted answers and paused time.

use parking_lot::Mutex;
use reqwest::StatusCode;
use std::collections::VecDeque;

use super::*;
use crate::hub::types::BucketId;
use crate::hub::wire::FailedOp;

pub(super) fn add(path: &str, hash: &str) -> BatchOp {
    BatchOp::Add {
        path: path.into(),
        xet_hash: hash.into(),
        mtime_ms: None,
        content_type: None,
    }
}

pub(super) fn delete(path: &str) -> BatchOp {
    BatchOp::Delete { path: path.into() }
}

fn copy(path: &str, hash: &str) -> BatchOp {
    BatchOp::Copy {
        path: path.into(),
        xet_hash: hash.into(),
        source: BucketId {
            namespace: "o".into(),
            name: "b".into(),
        },
        mtime_ms: None,
        content_type: None,
    }
}

pub(super) fn report(
    success: bool,
    processed: u64,
    succeeded: u64,
    failed: &[(&str, &str)],
) -> BatchReport {
    let failed = failed.iter().map(|(path, error)| FailedOp {
        path: (*path).to_owned(),
        error: (*error).to_owned(),
    });
    BatchReport {
        success,
        processed,
        succeeded,
        failed: failed.collect(),
    }
}

/// What the hub does with one request.
enum Step {
    /// Does these paths' operations and reports the others as failed, under this status.
    Fail(u16, &'static [&'static str]),
    /// Does these paths' operations, and answers with this report.
    Claim(&'static [&'static str], BatchReport),
    /// Does these paths' operations, and the answer is lost.
    Lose(&'static [&'static str]),
    /// Does nothing, and asks to be left alone for so many seconds.
    Busy(u64),
    Refuse(ErrorKind),
}

/// A bucket that does what it is told to, and everything else right.
#[derive(Default)]
struct Bucket {
    entries: Mutex<HashMap<String, String>>,
    steps: Mutex<VecDeque<Step>>,
    /// Paths of every request, with the seconds since the start.
    requests: Mutex<Vec<(u64, Vec<String>)>>,
    looks: Mutex<Vec<Vec<String>>>,
    blind: bool,
    start: Mutex<Option<Instant>>,
}

impl Bucket {
    fn new(entries: &[(&str, &str)], steps: impl IntoIterator<Item = Step>) -> Self {
        let entries = entries.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        Self {
            entries: Mutex::new(entries.collect()),
            steps: Mutex::new(steps.into_iter().collect()),
            start: Mutex::new(Some(Instant::now())),
            ..Self::default()
        }
    }

    fn apply(&self, op: &BatchOp) {
        let mut entries = self.entries.lock();
        match op {
            BatchOp::Add { path, xet_hash, .. } | BatchOp::Copy { path, xet_hash, .. } => {
                entries.insert(path.clone(), xet_hash.clone());
            }
            BatchOp::Delete { path } => {
                entries.remove(path);
            }
        }
    }

    fn entry(&self, path: &str) -> Option<String> {
        self.entries.lock().get(path).cloned()
    }

    fn requests(&self) -> Vec<(u64, Vec<String>)> {
        self.requests.lock().clone()
    }

    fn paths(&self) -> Vec<Vec<String>> {
        self.requests()
            .into_iter()
            .map(|(_, paths)| paths)
            .collect()
    }
}

fn context(status: u16) -> Error {
    Error::new(ErrorKind::Protocol, "")
        .with_status(StatusCode::from_u16(status).unwrap())
        .with_request_id(Some("req".into()))
}

#[async_trait]
impl BatchWire for Bucket {
    async fn send(&self, ops: &[&BatchOp], deadline: Instant) -> Sent {
        assert!(Instant::now() <= deadline, "sent after the deadline");
        let paths: Vec<_> = ops.iter().map(|op| op.path().to_owned()).collect();
        let seconds = self.start.lock().unwrap().elapsed().as_secs();
        self.requests.lock().push((seconds, paths));
        let step = self.steps.lock().pop_front();
        let step = step.unwrap_or(Step::Fail(200, &[]));
        let is_done = |path: &str| match &step {
            Step::Fail(_, paths) => !paths.contains(&path),
            Step::Claim(paths, _) | Step::Lose(paths) => paths.contains(&path),
            Step::Refuse(_) | Step::Busy(_) => false,
        };
        let (done, failed): (Vec<&BatchOp>, Vec<_>) =
            ops.iter().copied().partition(|op| is_done(op.path()));
        done.iter().for_each(|op| self.apply(op));
        match step {
            Step::Fail(status, _) => {
                let failed: Vec<_> = failed.iter().map(|op| (op.path(), "no luck")).collect();
                let (sent, ok) = (ops.len() as u64, done.len() as u64);
                Sent::Report {
                    report: report(failed.is_empty(), sent, ok, &failed),
                    context: context(status),
                }
            }
            Step::Claim(_, report) => Sent::Report {
                report,
                context: context(200),
            },
            Step::Lose(_) => Sent::Unknown {
                error: Error::new(ErrorKind::Transport, "cut off"),
                wait: None,
            },
            Step::Busy(seconds) => Sent::Unknown {
                error: context(503),
                wait: Some(Duration::from_secs(seconds)),
            },
            Step::Refuse(kind) => Sent::Refused(Error::new(kind, "refused")),
        }
    }

    async fn look(&self, paths: &[String]) -> Result<HashMap<String, Option<String>>, Error> {
        self.looks.lock().push(paths.to_vec());
        if self.blind {
            return Err(Error::new(ErrorKind::Server, "cannot look"));
        }
        let found = paths.iter().filter_map(|path| {
            let hash = self.entry(path)?;
            Some((path.clone(), Some(hash)))
        });
        Ok(found.collect())
    }
}

fn policy(max_retries: usize, seconds: u64) -> RetryPolicy {
    RetryPolicy {
        max_retries,
        timeout: Duration::from_secs(seconds),
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(1),
        base: 2.0,
    }
}

async fn run(bucket: &Bucket, ops: &[BatchOp]) -> Result<Vec<Outcome>, Error> {
    settle(bucket, &policy(3, 60), ops).await
}

/// Outcomes as kinds, `None` for success.
fn kinds(outcomes: &[Outcome]) -> Vec<Option<ErrorKind>> {
    let kind = |outcome: &Outcome| outcome.as_ref().err().map(Error::kind);
    outcomes.iter().map(kind).collect()
}

fn list<const N: usize>(paths: [&str; N]) -> Vec<String> {
    paths.map(str::to_owned).to_vec()
}

#[tokio::test(start_paused = true)]
async fn a_busy_hub_is_left_alone_for_as_long_as_it_asks() {
    let bucket = Bucket::new(&[], [Step::Busy(17)]);
    let outcomes = run(&bucket, &[add("a", "1")]).await.unwrap();
    assert_eq!(kinds(&outcomes), [None]);
    let times: Vec<_> = bucket.requests().into_iter().map(|(at, _)| at).collect();
    assert_eq!(times, [0, 17]);
    // There is no time for that: what became of it is found out, and the rest is an error.
    let bucket = Bucket::new(&[], [Step::Busy(61)]);
    let error = run(&bucket, &[add("a", "1")]).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("due in 61.0 s and only 60.0 s are left"),
        "{text}"
    );
    assert_eq!(bucket.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_clean_batch_is_one_request() {
    let bucket = Bucket::new(&[("old", "9")], []);
    let ops = [delete("old"), add("a", "1"), copy("b", "2")];
    let outcomes = run(&bucket, &ops).await.unwrap();
    assert_eq!(kinds(&outcomes), [None, None, None]);
    assert_eq!(bucket.requests(), [(0, list(["a", "b", "old"]))]);
    assert!(bucket.looks.lock().is_empty());
    assert_eq!(bucket.entry("b").as_deref(), Some("2"));
    assert!(run(&bucket, &[]).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn only_what_failed_is_sent_again_after_two_and_four_seconds() {
    let steps = [Step::Fail(200, &["b", "c"]), Step::Fail(200, &["c"])];
    let bucket = Bucket::new(&[], steps);
    let ops = [add("a", "1"), add("b", "1"), add("c", "1")];
    let outcomes = run(&bucket, &ops).await.unwrap();
    assert_eq!(kinds(&outcomes), [None, None, None]);
    let expected = [
        (0, list(["a", "b", "c"])),
        (2, list(["b", "c"])),
        (6, list(["c"])),
    ];
    assert_eq!(bucket.requests(), expected);
}

#[tokio::test(start_paused = true)]
async fn after_three_tries_the_failures_are_told_per_path() {
    for (status, kind) in [(200, ErrorKind::Server), (422, ErrorKind::Invalid)] {
        let steps = (0..9).map(|_| Step::Fail(status, &["b"]));
        let bucket = Bucket::new(&[], steps);
        let outcomes = run(&bucket, &[add("b", "1"), add("a", "1")]).await.unwrap();
        assert_eq!(kinds(&outcomes), [Some(kind), None]);
        assert_eq!(bucket.requests().len(), 3);
        let error = outcomes[0].as_ref().unwrap_err();
        assert_eq!(error.request_id(), Some("req"));
        let text = error.to_string();
        assert!(text.contains("path 'b'"), "{text}");
        assert!(text.contains("the Hub did not add it: no luck"), "{text}");
        assert!(text.contains("3 attempts in 6.0 s"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_that_does_not_fit_the_deadline_is_not_made() {
    let steps = (0..9).map(|_| Step::Fail(200, &["a"]));
    let bucket = Bucket::new(&[], steps);
    let start = Instant::now();
    let outcomes = settle(&bucket, &policy(3, 5), &[add("a", "1")])
        .await
        .unwrap();
    assert_eq!(kinds(&outcomes), [Some(ErrorKind::Server)]);
    assert_eq!(start.elapsed().as_secs(), 2);
    assert_eq!(bucket.requests().len(), 2);
    let text = outcomes[0].as_ref().unwrap_err().to_string();
    assert!(
        text.contains("due in 4.0 s and only 3.0 s are left"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_refused_deletion_of_what_is_not_there_is_done() {
    let steps = [Step::Fail(200, &["gone", "there"])];
    let bucket = Bucket::new(&[("there", "1")], steps);
    let outcomes = run(&bucket, &[delete("gone"), delete("there")])
        .await
        .unwrap();
    assert_eq!(kinds(&outcomes), [None, None]);
    let expected = [(0, list(["gone", "there"])), (2, list(["there"]))];
    assert_eq!(bucket.requests(), expected);
    assert_eq!(*bucket.looks.lock(), [list(["gone", "there"])]);
}

#[tokio::test(start_paused = true)]
async fn a_report_that_cannot_be_true_is_settled_by_looking() {
    for claim in [
        report(false, 3, 3, &[]),
        report(true, 3, 2, &[("z", "x")]),
        report(true, 2, 2, &[]),
        report(true, 3, 1, &[]),
    ] {
        let steps = [Step::Claim(&["a", "c"], claim)];
        let bucket = Bucket::new(&[("c", "1")], steps);
        let ops = [add("a", "1"), add("b", "1"), delete("c")];
        let outcomes = run(&bucket, &ops).await.unwrap();
        assert_eq!(kinds(&outcomes), [None, Some(ErrorKind::Protocol), None]);
        assert_eq!(bucket.requests().len(), 1);
        let text = outcomes[1].as_ref().unwrap_err().to_string();
        assert!(text.contains("cannot be true"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_settled_by_looking_and_the_rest_sent_again() {
    let bucket = Bucket::new(&[("c", "1"), ("d", "1")], [Step::Lose(&["a", "c"])]);
    let ops = [add("a", "1"), copy("b", "1"), delete("c"), delete("d")];
    let outcomes = run(&bucket, &ops).await.unwrap();
    assert_eq!(kinds(&outcomes), [None; 4]);
    assert_eq!(
        bucket.paths(),
        [list(["a", "b", "c", "d"]), list(["b", "d"])]
    );
    assert_eq!(*bucket.looks.lock(), [list(["a", "b", "c", "d"])]);
    assert_eq!(bucket.entry("d"), None);
}

#[tokio::test(start_paused = true)]
async fn another_hash_at_the_path_does_not_pass_for_ours() {
    let bucket = Bucket::new(&[("a", "old")], [Step::Lose(&[])]);
    let outcomes = run(&bucket, &[add("a", "new")]).await.unwrap();
    assert_eq!(kinds(&outcomes), [None]);
    assert_eq!(bucket.requests().len(), 2);
    assert_eq!(bucket.entry("a").as_deref(), Some("new"));
}

#[tokio::test(start_paused = true)]
async fn lost_answers_come_to_an_end() {
    let bucket = Bucket::new(&[], (0..9).map(|_| Step::Lose(&[])));
    let error = run(&bucket, &[add("a", "1")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transport);
    assert_eq!(bucket.requests().len(), 4);
    assert!(error.to_string().contains("4 attempts"), "{error}");

    let bucket = Bucket::new(&[], [Step::Lose(&["a"])]);
    let outcomes = settle(&bucket, &policy(0, 60), &[add("a", "1"), add("b", "1")]).await;
    let kinds = kinds(&outcomes.unwrap());
    assert_eq!(kinds, [None, Some(ErrorKind::Transport)]);
    assert_eq!(bucket.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_that_cannot_be_checked_is_an_error_that_says_so() {
    let mut bucket = Bucket::new(&[], [Step::Lose(&["a"])]);
    bucket.blind = true;
    let error = run(&bucket, &[add("a", "1")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transport);
    let text = error.to_string();
    assert!(text.contains("cut off; whether it was done"), "{text}");
    assert!(text.contains("cannot look"), "{text}");
    assert_eq!(bucket.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn operations_on_one_path_keep_their_order() {
    let bucket = Bucket::new(&[], []);
    let ops = [add("a", "1"), delete("a"), add("b", "1"), add("a", "2")];
    let outcomes = run(&bucket, &ops).await.unwrap();
    assert_eq!(kinds(&outcomes), [None; 4]);
    assert_eq!(bucket.paths(), [list(["a", "b"]), list(["a"]), list(["a"])]);
    assert_eq!(bucket.entry("a").as_deref(), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_batch_is_one_error() {
    let bucket = Bucket::new(&[], [Step::Refuse(ErrorKind::PermissionDenied)]);
    let error = run(&bucket, &[add("a", "1"), add("b", "1")])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert_eq!(bucket.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_half_way_leaves_what_is_done_done() {
    let steps = [
        Step::Fail(200, &[]),
        Step::Refuse(ErrorKind::Unauthenticated),
    ];
    let bucket = Bucket::new(&[], steps);
    let ops = [add("a", "1"), delete("a"), add("a", "2")];
    let outcomes = run(&bucket, &ops).await.unwrap();
    let refused = Some(ErrorKind::Unauthenticated);
    assert_eq!(kinds(&outcomes), [None, refused, refused]);
    assert_eq!(outcomes[1].as_ref().unwrap_err().message(), "refused");
    assert_eq!(
        outcomes[2].as_ref().unwrap_err().message(),
        "not sent, as an earlier part failed: refused"
    );
    assert_eq!(bucket.requests().len(), 2);
}
