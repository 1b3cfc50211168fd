//! The hub's own time, which tests may move.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use parking_lot::Mutex;

/// The system's clock plus what tests have added to it.
#[derive(Debug, Default)]
pub(super) struct Clock {
    ahead: Mutex<TimeDelta>,
}

impl Clock {
    pub(super) fn now(&self) -> DateTime<Utc> {
        Utc::now() + *self.ahead.lock()
    }

    /// Moves the clock forward; a span that no date can hold is left out.
    pub(super) fn advance(&self, by: Duration) {
        let mut ahead = self.ahead.lock();
        if let Some(sum) = TimeDelta::from_std(by)
            .ok()
            .and_then(|by| ahead.checked_add(&by))
        {
            *ahead = sum;
        }
    }
}
