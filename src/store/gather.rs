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

/// A call for one goes out when nobody else has come for this long, in which others have had this many
/// turns.
const QUIET: Duration = Duration::from_micros(30);
const QUIET_TURNS: usize = 16;

/// Where several have come, more are likely: whoever brings them may have been interrupted.
const QUIET_OF_MANY: Duration = Duration::from_micros(300);

/// A call goes out after this time in any case.
const LONGEST_QUIET: Duration = Duration::from_millis(2);

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
    /// their requests before the next call goes out, as long as more come. They come microseconds
    /// apart, which no timer can tell.
    async fn take_turns(&self) {
        let started = std::time::Instant::now();
        let mut last = (started, 0);
        let mut quiet = 0;
        loop {
            let now = std::time::Instant::now();
            let waiting = self.shared.queue.lock().waiting.len();
            if waiting != last.1 {
                (last, quiet) = ((now, waiting), 0);
            }
            let enough = if waiting > 1 { QUIET_OF_MANY } else { QUIET };
            let is_quiet = quiet >= QUIET_TURNS && now - last.0 >= enough;
            if is_quiet || now - started >= LONGEST_QUIET {
                return;
            }
            quiet += 1;
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

    /// Waits until one call is under way and so many requests wait for the next.
    async fn under_way(gather: &Gather<Doubling>, waiting: usize) {
        loop {
            let now = {
                let queue = gather.shared.queue.lock();
                (queue.calls, queue.waiting.len())
            };
            if now == (1, waiting) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn the_next_call_gathers_while_one_is_under_way() {
        let (gather, gate, calls) = doubling();
        let first = submit(&gather, 1);
        under_way(&gather, 0).await;
        let rest: Vec<_> = (2..=6).map(|n| submit(&gather, n)).collect();
        under_way(&gather, 5).await;
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
        under_way(&gather, 0).await;
        let (second, third) = (submit(&gather, 2), submit(&gather, 3));
        under_way(&gather, 2).await;
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
        under_way(&gather, 0).await;
        for n in 0..1000 {
            let mut given_up = std::pin::pin!(gather.submit(n));
            assert!(futures::poll!(given_up.as_mut()).is_pending());
        }
        assert!(gather.shared.queue.lock().waiting.len() < 100);
        gate.add_permits(10);
        assert_eq!(first.await.unwrap().unwrap(), 2);
    }

    /// Takes one request per call, two calls at a time; each waits for a permit.
    struct Apart {
        gate: Arc<Semaphore>,
        most: Arc<Mutex<(usize, usize)>>,
    }

    impl Job for Apart {
        type Request = usize;
        type Answer = usize;

        const AT_ONCE: usize = 2;
        const WORTH: usize = 10;

        fn weight(request: &usize) -> usize {
            *request
        }

        fn select(&self, waiting: &mut VecDeque<Waiting<Self>>, _: usize) -> Vec<Waiting<Self>> {
            waiting.pop_front().into_iter().collect()
        }

        async fn run(&self, requests: Vec<usize>) -> Vec<usize> {
            {
                let mut most = self.most.lock();
                most.0 += 1;
                most.1 = most.1.max(most.0);
            }
            self.gate.acquire().await.expect("open").forget();
            self.most.lock().0 -= 1;
            requests
        }
    }

    /// How many calls were under way at a time, at most, for these requests at once.
    async fn most_at_once(requests: &[usize]) -> usize {
        let (gate, most) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new((0, 0))));
        let gather = Gather::new(Apart {
            gate: Arc::clone(&gate),
            most: Arc::clone(&most),
        });
        let answers = gather.submit_all(requests.to_vec());
        let release = async {
            let mut quiet = 0;
            while quiet < 1000 {
                let before = most.lock().0;
                tokio::task::yield_now().await;
                tokio::time::sleep(Duration::from_millis(1)).await;
                quiet = if most.lock().0 == before {
                    quiet + 1
                } else {
                    0
                };
            }
            gate.add_permits(requests.len());
        };
        let (answers, ()) = futures::join!(answers, release);
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, requests);
        most.lock().1
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_call_goes_beside_the_first_if_it_is_worth_it() {
        assert_eq!(most_at_once(&[5, 5]).await, 1);
        assert_eq!(most_at_once(&[5, 9, 5, 5]).await, 2);
        assert_eq!(most_at_once(&[20, 20, 20, 20]).await, 2);
        assert_eq!(most_at_once(&[20, 1]).await, 1);
    }

    /// Each call takes a second and remembers what went together.
    struct Slow(Arc<Mutex<Vec<usize>>>);

    impl Job for Slow {
        type Request = ();
        type Answer = ();

        fn select(&self, waiting: &mut VecDeque<Waiting<Self>>, _: usize) -> Vec<Waiting<Self>> {
            waiting.drain(..).collect()
        }

        async fn run(&self, requests: Vec<()>) -> Vec<()> {
            self.0.lock().push(requests.len());
            tokio::time::sleep(Duration::from_secs(1)).await;
            requests
        }
    }

    #[tokio::test(start_paused = true)]
    async fn callers_that_were_answered_together_stay_together() {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let gather = Gather::new(Slow(Arc::clone(&calls)));
        // Each thinks for a time of its own before it asks again.
        let callers = (0..10).map(|n| {
            let gather = &gather;
            async move {
                for _ in 0..4 {
                    gather.submit(()).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(3 * n)).await;
                }
            }
        });
        futures::future::join_all(callers).await;
        assert_eq!(*calls.lock(), [10; 4]);
        // Whoever is too late for a twentieth of the call's time waits for the next.
        let late = async {
            gather.submit(()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(60)).await;
            gather.submit(()).await.unwrap();
        };
        let steady = async {
            for _ in 0..2 {
                gather.submit(()).await.unwrap();
            }
        };
        futures::join!(late, steady);
        assert_eq!(calls.lock()[4..], [2, 1, 1]);
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
