//! Asking before something is gone for good.

use std::io::{self, Write};

use super::super::super::Stop;
use super::super::super::size::Size;
use super::report::Plan;

/// Asks on the terminal; anything but yes ends the command.
pub(super) async fn confirm(plan: &Plan, pool: &str) -> Result<(), Stop> {
    eprint!(
        "Delete {} objects, {}, from {pool}? [y/N] ",
        plan.objects,
        Size(plan.bytes)
    );
    io::stderr().flush()?;
    let answer = read_line().await?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err("not confirmed: nothing was deleted".into()),
    }
}

/// On a thread of its own, which may be left behind: the runtime would wait for one of its own
/// threads, and so for the line, also after Ctrl-C.
async fn read_line() -> Result<String, Stop> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = io::stdin().read_line(&mut line).map(|_| line);
        // Nobody waits any more after Ctrl-C.
        let _ = sender.send(read);
    });
    Ok(receiver.await??)
}
