//! Concurrent callers share one call: while one is under way, the next gathers.
//!
//! A caller that finds no call under way starts one at once, with whoever has come in the meantime.
//! When a call has been answered, its callers get a moment to come back, a twentieth of the time that
//! the call took, so that they stay together. A caller that gives up does not disturb the others,
//! since the calls run in tasks of their own. The queue holds one entry per waiting caller, so callers
//! bound it.
//!
//! A job may have several calls under way; a further one starts when enough is waiting to be worth it.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

/// What is done with the requests that have gathered.
pub(super) trait Job: Send + Sync + 'static {
    type Request: Send + 'static;
    type Answer: Send + 'static;

    /// Calls under way at a time, at most.
    const AT_ONCE: usize = 1;

    /// The weight of waiting requests that is worth a call beside those under way.
    const WORTH: usize = usize::MAX;

    fn weight(_: &Self::Request) -> usize {
        0
    }

    /// Takes from the front of the queue what shall go together. Nothing only if all that waits has to
    /// wait for another call under way. `others` says how many calls may still be added to this one.
    fn select(&self, waiting: &mut VecDeque<Waiting<Self>>, others: usize) -> Vec<Waiting<Self>>;

    /// Answers the requests, in their order.
    fn run(&self, requests: Vec<Self::Request>) -> impl Future<Output = Vec<Self::Answer>> + Send;
}

/// A request and where its answer goes.
pub(super) struct Waiting<J: Job + ?Sized> {
    pub(super) request: J::Request,
    answer: oneshot::Sender<J::Answer>,
}

impl<J: Job + ?Sized> Waiting<J> {
    fn new(request: J::Request) -> (Self, oneshot::Receiver<J::Answer>) {
        let (answer, receiver) = oneshot::channel();
        (Self { request, answer }, receiver)
    }

    /// A request that nobody waits for.
    #[cfg(test)]
    pub(super) fn unwatched(request: J::Request) -> Self {
        Self::new(request).0
    }

    /// Whether the caller has given up.
    pub(super) fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }
}

/// The task that makes the calls ended without an answer: the runtime is shutting down, or it
/// panicked.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the task that makes this request has ended without an answer")]
pub(super) struct Abandoned;

pub(super) struct Gather<J: Job> {
    shared: Arc<Shared<J>>,
}

struct Shared<J: Job> {
    job: J,
    queue: Mutex<Queue<J>>,
    /// As many are waiting as a gathering task hopes for.
    complete: Notify,
}

struct Queue<J: Job> {
    waiting: VecDeque<Waiting<J>>,
    /// Of those waiting.
    weight: usize,
    /// Tasks that make calls.
    running: usize,
    /// Calls under way.
    calls: usize,
    /// How many a task that gathers hopes for.
    hoped: usize,
}

impl<J: Job> Queue<J> {
    fn push(&mut self, waiting: Waiting<J>) {
        // Before it grows: callers that gave up must not keep their payloads here.
        if self.waiting.len() == self.waiting.capacity() {
            self.forget_abandoned();
        }
        self.weight = self.weight.saturating_add(J::weight(&waiting.request));
        self.waiting.push_back(waiting);
    }

    fn forget_abandoned(&mut self) {
        self.waiting.retain(|waiting| !waiting.is_abandoned());
        self.weigh();
    }

    fn weigh(&mut self) {
        let weights = self.waiting.iter().map(|one| J::weight(&one.request));
        self.weight = weights.fold(0, usize::saturating_add);
    }

    /// Whether there is nothing to be gained by waiting for more.
    fn is_enough(&self, count: usize) -> bool {
        self.waiting.len() >= count || self.weight >= J::WORTH
    }

    /// Whether a further task should make calls: then it counts as running.
    fn starts_another(&mut self) -> bool {
        let starts = !self.waiting.is_empty()
            && (self.running == 0 || (self.running < J::AT_ONCE && self.weight >= J::WORTH));
        self.running += usize::from(starts);
        starts
    }
}

impl<J: Job> Gather<J> {
    pub(super) fn new(job: J) -> Self {
        Self {
            shared: Arc::new(Shared {
                job,
                queue: Mutex::new(Queue {
                    waiting: VecDeque::new(),
                    weight: 0,
                    running: 0,
                    calls: 0,
                    hoped: usize::MAX,
                }),
                complete: Notify::new(),
            }),
        }
    }

    /// Adds one request and waits for its answer.
    pub(super) async fn submit(&self, request: J::Request) -> Result<J::Answer, Abandoned> {
        let mut answers = self.enqueue([request]);
        match answers.pop() {
            Some(answer) => answer.await.map_err(|_| Abandoned),
            None => Err(Abandoned),
        }
    }

    /// Adds requests side by side and waits for all answers, in order.
    pub(super) async fn submit_all(
        &self,
        requests: Vec<J::Request>,
    ) -> Vec<Result<J::Answer, Abandoned>> {
        let answers = self.enqueue(requests);
        let answers = answers
            .into_iter()
            .map(|answer| async { answer.await.map_err(|_| Abandoned) });
        futures::future::join_all(answers).await
    }

    fn enqueue(
        &self,
        requests: impl IntoIterator<Item = J::Request>,
    ) -> Vec<oneshot::Receiver<J::Answer>> {
        let mut receivers = Vec::new();
        let start = {
            let mut queue = self.shared.queue.lock();
            for request in requests {
                let (waiting, receiver) = Waiting::new(request);
                queue.push(waiting);
                receivers.push(receiver);
            }
            if queue.is_enough(queue.hoped) {
                self.shared.complete.notify_one();
            }
            queue.starts_another()
        };
        if start {
            // Without the lock: a runtime that is going away drops the task at once, which takes it.
            Running::start(&self.shared);
        }
        receivers
    }
}

/// A task that makes calls. However it ends, it is no longer counted as running, so that the next
/// caller starts a new one.
struct Running<J: Job> {
    shared: Arc<Shared<J>>,
    /// Whether the queue still counts on this task.
    owed: bool,
    /// Whether a call of this task is under way.
    calls: bool,
}

impl<J: Job> Drop for Running<J> {
    fn drop(&mut self) {
        if self.owed {
            let mut queue = self.shared.queue.lock();
            queue.running -= 1;
            queue.calls -= usize::from(self.calls);
            if queue.running == 0 {
                // Nobody is left to answer those who wait; this tells them.
                queue.waiting.clear();
                queue.weight = 0;
            }
        }
    }
}

/// Turns that others get at most before a call goes out, and those in which nobody came after which
/// it does.
const MOST_TURNS: usize = 256;
const QUIET_TURNS: usize = 16;

/// The share of a call's time for which the next one waits for its callers to come back.
const PATIENCE: u32 = 20;

/// The timer's resolution: a shorter wait would become a longer one.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

impl<J: Job> Running<J> {
    fn start(shared: &Arc<Shared<J>>) {
        let running = Self {
            shared: Arc::clone(shared),
            owed: true,
            calls: false,
        };
        tokio::spawn(running.drive());
    }

    async fn drive(mut self) {
        tokio::task::yield_now().await;
        self.take_turns().await;
        while let Some(selected) = self.next() {
            let (requests, senders): (Vec<_>, Vec<_>) = selected
                .into_iter()
                .map(|waiting| (waiting.request, waiting.answer))
                .unzip();
            let started = Instant::now();
            let answers = self.shared.job.run(requests).await;
            let took = started.elapsed();
            self.call_is_done();
            debug_assert_eq!(answers.len(), senders.len());
            let delivered = senders
                .into_iter()
                .zip(answers)
                // A caller that has gone away needs no answer.
                .filter_map(|(sender, answer)| sender.send(answer).ok())
                .count();
            tokio::task::yield_now().await;
            self.take_turns().await;
            self.hope_for(delivered, took / PATIENCE).await;
        }
    }

    /// Callers that were woken together, by an answer or by whatever made them begin, get to add
    /// their requests before the next call goes out, as long as more come.
    async fn take_turns(&self) {
        let (mut before, mut quiet) = (0, 0);
        for _ in 0..MOST_TURNS {
            let waiting = self.shared.queue.lock().waiting.len();
            quiet = if waiting == before { quiet + 1 } else { 0 };
            if quiet == QUIET_TURNS {
                return;
            }
            before = waiting;
            tokio::task::yield_now().await;
        }
    }

    /// Waits a moment until as many are waiting as have just been answered.
    async fn hope_for(&self, count: usize, patience: Duration) {
        if patience < SHORTEST_WAIT {
            return;
        }
        {
            let mut queue = self.shared.queue.lock();
            if queue.is_enough(count) {
                return;
            }
            queue.hoped = count;
        }
        // Whether they have come or not, the call goes out.
        let _ = timeout(patience, self.shared.complete.notified()).await;
        self.shared.queue.lock().hoped = usize::MAX;
    }

    fn call_is_done(&mut self) {
        self.shared.queue.lock().calls -= 1;
        self.calls = false;
    }

    /// The next requests to go, or `None` with this task no longer counted, under the same lock.
    fn next(&mut self) -> Option<Vec<Waiting<J>>> {
        let (selected, starts) = {
            let mut queue = self.shared.queue.lock();
            queue.forget_abandoned();
            let others = J::AT_ONCE.saturating_sub(queue.calls + 1);
            let selected = self.shared.job.select(&mut queue.waiting, others);
            queue.weigh();
            if selected.is_empty() {
                // What still waits does so for another task's call, which looks again when it is done.
                queue.running -= 1;
                self.owed = false;
                return None;
            }
            queue.calls += 1;
            self.calls = true;
            (selected, queue.starts_another())
        };
        if starts {
            Self::start(&self.shared);
        }
        Some(selected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::Semaphore;

    /// Doubles numbers; each call waits for a permit; remembers what went together.
    struct Doubling {
        gate: Arc<Semaphore>,
        calls: Arc<Mutex<Vec<Vec<u32>>>>,
    }

    impl Job for Doubling {
        type Request = u32;
        type Answer = u32;

        fn select(&self, waiting: &mut VecDeque<Waiting<Self>>, _: usize) -> Vec<Waiting<Self>> {
            let count = waiting.len().min(3);
            waiting.drain(..count).collect()
        }

        async fn run(&self, requests: Vec<u32>) -> Vec<u32> {
            self.gate.acquire().await.expect("open").forget();
            self.calls.lock().push(requests.clone());
            assert!(!requests.contains(&666), "a job that panics");
            requests.iter().map(|n| n * 2).collect()
        }
    }

    type Calls = Arc<Mutex<Vec<Vec<u32>>>>;

    fn doubling() -> (Arc<Gather<Doubling>>, Arc<Semaphore>, Calls) {
        let gate = Arc::new(Semaphore::new(0));
        let calls = Arc::new(Mutex::new(Vec::new()));
        let job = Doubling {
            gate: Arc::clone(&gate),
            calls: Arc::clone(&calls),
        };
        (Arc::new(Gather::new(job)), gate, calls)
    }

    fn submit(
        gather: &Arc<Gather<Doubling>>,
        n: u32,
    ) -> tokio::task::JoinHandle<Result<u32, Abandoned>> {
        let gather = Arc::clone(gather);
        tokio::spawn(async move { gather.submit(n).await })
    }

    #[tokio::test]
    async fn the_next_call_gathers_while_one_is_under_way() {
        let (gather, gate, calls) = doubling();
        let first = submit(&gather, 1);
        for _ in 0..4 * QUIET_TURNS {
            tokio::task::yield_now().await;
        }
        let rest: Vec<_> = (2..=6).map(|n| submit(&gather, n)).collect();
        for _ in 0..4 * QUIET_TURNS {
            tokio::task::yield_now().await;
        }
        gate.add_permits(10);
        assert_eq!(first.await.unwrap().unwrap(), 2);
        for (task, n) in rest.into_iter().zip(2..) {
            assert_eq!(task.await.unwrap().unwrap(), n * 2);
        }
        assert_eq!(*calls.lock(), [vec![1], vec![2, 3, 4], vec![5, 6]]);
    }

    #[tokio::test]
    async fn one_that_gives_up_leaves_the_others_alone() {
        let (gather, gate, calls) = doubling();
        let first = submit(&gather, 1);
        for _ in 0..4 * QUIET_TURNS {
            tokio::task::yield_now().await;
        }
        let (second, third) = (submit(&gather, 2), submit(&gather, 3));
        for _ in 0..4 * QUIET_TURNS {
            tokio::task::yield_now().await;
        }
        // The first has started its call and goes; the second has not, and is not sent at all.
        first.abort();
        second.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        assert!(second.await.unwrap_err().is_cancelled());
        gate.add_permits(10);
        assert_eq!(third.await.unwrap().unwrap(), 6);
        assert_eq!(*calls.lock(), [vec![1], vec![3]]);
    }

    #[tokio::test]
    async fn a_call_that_panics_fails_its_callers_and_no_later_ones() {
        let (gather, gate, _) = doubling();
        gate.add_permits(10);
        let doomed: Vec<_> = [666, 1, 2, 3].map(|n| submit(&gather, n)).into();
        for task in doomed {
            assert!(task.await.unwrap().is_err());
        }
        assert_eq!(submit(&gather, 4).await.unwrap().unwrap(), 8);
    }

    #[test]
    fn without_a_runtime_it_panics_and_does_not_hang() {
        let (gather, _, _) = doubling();
        let other = Arc::clone(&gather);
        let outside = std::thread::spawn(move || futures::executor::block_on(other.submit(1)));
        assert!(outside.join().is_err());
        // The queue is as if nothing had been asked.
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (answer, gate) = (gather.submit(2), &gather.shared.job.gate);
        gate.add_permits(1);
        assert_eq!(runtime.block_on(answer).unwrap(), 4);
    }

    #[tokio::test]
    async fn callers_that_gave_up_keep_nothing_in_the_queue() {
        let (gather, gate, _) = doubling();
        let first = submit(&gather, 1);
        for _ in 0..4 * QUIET_TURNS {
            tokio::task::yield_now().await;
        }
        for n in 0..1000 {
            let mut given_up = std::pin::pin!(gather.submit(n));
            assert!(futures::poll!(given_up.as_mut()).is_pending());
        }
        assert!(gather.shared.queue.lock().waiting.len() < 100);
        gate.add_permits(10);
        assert_eq!(first.await.unwrap().unwrap(), 2);
    }

    #[tokio::test]
    async fn many_at_once_keep_their_order() {
        let (gather, gate, _) = doubling();
        gate.add_permits(10);
        let answers = gather.submit_all((0..10).collect()).await;
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, (0..10).map(|n| n * 2).collect::<Vec<_>>());
        assert!(gather.submit_all(vec![]).await.is_empty());
    }
}
