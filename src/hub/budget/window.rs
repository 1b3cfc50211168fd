//! What is known of one rate-limit window, and whether the next request may go.

use std::time::Duration;

use tokio::time::Instant;

use crate::hub::rate_limit::Stated;

/// Requests under way at most while nothing is known of the limit: at the start, and when a window
/// has just begun. The first answer tells.
const UNKNOWN_MOST: u64 = 32;

/// Answers of one window disagree about its end by rounding and by the time they took to arrive.
const SAME_WINDOW: Duration = Duration::from_secs(10);

/// Requests are spaced out once no more than one part in so many of the quota is left.
const SCARCE: u64 = 4;

/// Whether a request may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Now,
    /// At that time, unless an answer brings news.
    At(Instant),
    /// When an answer has come: those under way may use up what is left.
    AfterAnswer,
}

#[derive(Debug, Default)]
pub(super) struct Window {
    limit: Limit,
    in_flight: u64,
    /// When the last request went.
    last: Option<Instant>,
    /// Nothing goes before: the Hub has refused a request and said how long to wait.
    closed_until: Option<Instant>,
}

#[derive(Debug, Default, Clone, Copy)]
enum Limit {
    #[default]
    Unknown,
    /// Answers say nothing of a limit.
    None,
    Known(Known),
}

#[derive(Debug, Clone, Copy)]
struct Known {
    /// What the Hub said is left, less the requests that ended without such a word. Requests under
    /// way may or may not be counted in it.
    left: u64,
    /// When the window is surely over.
    reset: Instant,
    /// Requests per window.
    quota: u64,
}

impl Window {
    /// Whether a request may go. Spacing never takes more than half of the time until `deadline`: it
    /// makes callers slower, but fails none.
    pub(super) fn admission(&mut self, now: Instant, deadline: Instant) -> Admission {
        if let Some(until) = self.closed_until {
            if now < until {
                return Admission::At(until);
            }
            self.closed_until = None;
        }
        if matches!(self.limit, Limit::Known(known) if now >= known.reset) {
            self.limit = Limit::Unknown;
        }
        match self.limit {
            Limit::None => Admission::Now,
            Limit::Unknown if self.in_flight < UNKNOWN_MOST => Admission::Now,
            Limit::Unknown => Admission::AfterAnswer,
            Limit::Known(known) => self.within(known, now, deadline),
        }
    }

    fn within(&self, known: Known, now: Instant, deadline: Instant) -> Admission {
        if known.left == 0 {
            return Admission::At(known.reset);
        }
        let free = known.left.saturating_sub(self.in_flight);
        if free == 0 {
            return Admission::AfterAnswer;
        }
        let Some(last) = self.last.filter(|_| free <= known.quota / SCARCE) else {
            return Admission::Now;
        };
        let share = known.reset.duration_since(now).as_secs_f64() / (free + 1) as f64;
        let patience = deadline.saturating_duration_since(now) / 2;
        let next = last + Duration::from_secs_f64(share).min(patience);
        if next > now {
            Admission::At(next)
        } else {
            Admission::Now
        }
    }

    /// A request goes.
    pub(super) fn sent(&mut self, now: Instant) {
        self.in_flight += 1;
        self.last = Some(now);
    }

    /// An answer has come, with what it said of the limit.
    pub(super) fn answered(&mut self, now: Instant, stated: Option<Stated>) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match (stated, &mut self.limit) {
            (Some(stated), _) => self.learn(now, stated),
            (None, Limit::Known(known)) => known.left = known.left.saturating_sub(1),
            (None, limit) => *limit = Limit::None,
        }
    }

    /// A request ended without an answer; the Hub may have counted it.
    pub(super) fn lost(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Limit::Known(known) = &mut self.limit {
            known.left = known.left.saturating_sub(1);
        }
    }

    /// A request was refused, and the next shall wait.
    pub(super) fn refused(&mut self, now: Instant, wait: Duration) {
        self.closed_until = self.closed_until.max(Some(now + wait));
    }

    fn learn(&mut self, now: Instant, stated: Stated) {
        let reset = now + stated.reset;
        let mut known = Known {
            left: stated.left,
            reset,
            quota: stated.quota.unwrap_or(stated.left),
        };
        if let Limit::Known(before) = self.limit {
            if stated.quota.is_none() {
                known.quota = known.quota.max(before.quota);
            }
            let (earlier, later) = (before.reset.min(reset), before.reset.max(reset));
            // Answers overtake each other: within one window only the lowest count is true.
            if now < before.reset && later - earlier <= SAME_WINDOW {
                known.left = known.left.min(before.left);
                known.reset = earlier;
            }
        }
        self.limit = Limit::Known(known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stated(left: u64, reset: u64) -> Option<Stated> {
        Some(Stated {
            left,
            reset: Duration::from_secs(reset),
            quota: Some(100),
        })
    }

    struct At(Instant);

    impl At {
        fn secs(&self, secs: u64) -> Instant {
            self.0 + Duration::from_secs(secs)
        }
    }

    fn start() -> (Window, At, Instant) {
        let now = Instant::now();
        (Window::default(), At(now), now + Duration::from_secs(3600))
    }

    /// Sends a request and takes its answer.
    fn ask(window: &mut Window, now: Instant, answer: Option<Stated>) {
        window.sent(now);
        window.answered(now, answer);
    }

    #[test]
    fn until_an_answer_comes_only_a_few_go() {
        let (mut window, at, deadline) = start();
        for _ in 0..UNKNOWN_MOST {
            assert_eq!(window.admission(at.0, deadline), Admission::Now);
            window.sent(at.0);
        }
        assert_eq!(window.admission(at.0, deadline), Admission::AfterAnswer);
        // This server knows no limits.
        window.answered(at.0, None);
        for _ in 0..10 * UNKNOWN_MOST {
            assert_eq!(window.admission(at.0, deadline), Admission::Now);
            window.sent(at.0);
        }
    }

    #[test]
    fn what_is_under_way_counts() {
        let (mut window, at, deadline) = start();
        ask(&mut window, at.0, stated(60, 300));
        for _ in 0..35 {
            assert_eq!(window.admission(at.0, deadline), Admission::Now);
            window.sent(at.0);
        }
        // 25 are left, a quarter of the quota: from here on they are spaced over the 300 s.
        let next = match window.admission(at.0, deadline) {
            Admission::At(next) => next - at.0,
            other => panic!("{other:?}"),
        };
        assert_eq!(next.as_millis(), 300_000 / 26);
        for _ in 0..25 {
            window.sent(at.0);
        }
        assert_eq!(window.admission(at.0, deadline), Admission::AfterAnswer);
        // One is lost: the Hub may have counted it.
        window.lost();
        assert_eq!(window.admission(at.0, deadline), Admission::AfterAnswer);
    }

    #[test]
    fn a_window_that_is_used_up_opens_at_its_end() {
        let (mut window, at, deadline) = start();
        ask(&mut window, at.0, stated(0, 56));
        assert_eq!(
            window.admission(at.secs(55), deadline),
            Admission::At(at.secs(56))
        );
        assert_eq!(window.admission(at.secs(56), deadline), Admission::Now);
    }

    #[test]
    fn answers_that_overtake_each_other_do_not_raise_the_count() {
        let (mut window, at, deadline) = start();
        ask(&mut window, at.0, stated(1, 100));
        ask(&mut window, at.secs(2), stated(90, 99));
        ask(&mut window, at.secs(2), None);
        assert_eq!(
            window.admission(at.secs(3), deadline),
            Admission::At(at.secs(100))
        );
        // But the next window's count holds, even if it is told early.
        ask(&mut window, at.secs(50), stated(90, 300));
        assert_eq!(window.admission(at.secs(50), deadline), Admission::Now);
    }

    #[test]
    fn spacing_leaves_time_before_the_deadline() {
        let (mut window, at, _) = start();
        ask(&mut window, at.0, stated(1, 300));
        assert_eq!(
            window.admission(at.0, at.secs(20)),
            Admission::At(at.secs(10))
        );
        assert_eq!(
            window.admission(at.0, at.secs(1000)),
            Admission::At(at.secs(150))
        );
    }

    #[test]
    fn a_refusal_closes_the_window_for_as_long_as_it_says() {
        let (mut window, at, deadline) = start();
        ask(&mut window, at.0, None);
        window.refused(at.0, Duration::from_secs(30));
        window.refused(at.0, Duration::from_secs(5));
        assert_eq!(window.admission(at.0, deadline), Admission::At(at.secs(30)));
        assert_eq!(window.admission(at.secs(30), deadline), Admission::Now);
    }
}
