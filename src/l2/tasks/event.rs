//! What wakes a poller of another runtime: an eventfd, on Linux.

#[cfg(target_os = "linux")]
pub(super) use self::linux::Event;
#[cfg(not(target_os = "linux"))]
pub(super) use self::none::Event;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::Errno;

    /// Readable from a [`signal`](Self::signal) to the next [`clear`](Self::clear), however many
    /// signals there were.
    #[derive(Debug)]
    pub(in crate::l2::tasks) struct Event(OwnedFd);

    impl Event {
        pub(in crate::l2::tasks) fn new() -> io::Result<Self> {
            let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
            Ok(Self(eventfd(0, flags)?))
        }

        pub(in crate::l2::tasks) fn signal(&self) {
            match rustix::io::write(&self.0, &1u64.to_ne_bytes()) {
                // A full counter is readable already.
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(error) => tracing::error!(%error, "an eventfd cannot be written"),
            }
        }

        pub(in crate::l2::tasks) fn clear(&self) {
            match rustix::io::read(&self.0, &mut [0; 8]) {
                // Nothing was signalled, or the poller has read it itself.
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(error) => tracing::error!(%error, "an eventfd cannot be read"),
            }
        }

        pub(in crate::l2::tasks) fn fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        use rustix::io::{FdFlags, fcntl_getfd};

        fn is_readable(event: &Event) -> bool {
            let mut fds = [PollFd::from_borrowed_fd(event.fd(), PollFlags::IN)];
            poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
        }

        #[test]
        fn signals_coalesce_and_clear_never_blocks() {
            let event = Event::new().unwrap();
            event.clear();
            assert!(!is_readable(&event));
            event.signal();
            event.signal();
            assert!(is_readable(&event));
            event.clear();
            assert!(!is_readable(&event));
        }

        #[test]
        fn a_full_counter_blocks_nobody() {
            let event = Event::new().unwrap();
            rustix::io::write(event.fd(), &(u64::MAX - 1).to_ne_bytes()).unwrap();
            event.signal();
            assert!(is_readable(&event));
            event.clear();
            assert!(!is_readable(&event));
        }

        #[test]
        fn no_other_program_inherits_it() {
            let event = Event::new().unwrap();
            let flags = fcntl_getfd(event.fd()).unwrap();
            assert!(flags.contains(FdFlags::CLOEXEC));
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod none {
    use std::io;

    #[derive(Debug)]
    pub(in crate::l2::tasks) struct Event;

    impl Event {
        // Fallible as on Linux.
        #[allow(clippy::unnecessary_wraps)]
        pub(in crate::l2::tasks) fn new() -> io::Result<Self> {
            Ok(Self)
        }

        pub(in crate::l2::tasks) fn signal(&self) {}

        pub(in crate::l2::tasks) fn clear(&self) {}
    }
}
