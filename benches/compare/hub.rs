//! A LocalHub in a process of its own: this program, told to serve.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use hfbucket::local_hub::LocalHub;
use parking_lot::Mutex;
use tempfile::TempDir;

pub const SERVE: &str = "--serve-a-local-hub";

/// A hub with one bucket, `my-org/b`.
pub struct Hub {
    process: Child,
    pipes: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    pub endpoint: String,
    pub token: String,
    /// Shard caches of this hub's clients: they remember what a server holds.
    pub cache: TempDir,
}

impl Hub {
    pub fn start() -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .arg(SERVE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a second process");
        let stdin = process.stdin.take().expect("piped");
        let mut stdout = BufReader::new(process.stdout.take().expect("piped"));
        let endpoint = line(&mut stdout);
        let token = line(&mut stdout);
        Self {
            process,
            pipes: Mutex::new((stdin, stdout)),
            endpoint,
            token,
            cache: TempDir::new().expect("a temporary folder"),
        }
    }

    /// Calls of the API, resolver and token classes so far.
    pub fn calls(&self) -> u64 {
        let mut pipes = self.pipes.lock();
        writeln!(pipes.0, "calls").expect("the hub listens");
        line(&mut pipes.1).parse().expect("a number")
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).expect("the hub answers");
    line.trim_end().to_owned()
}

/// Serves until stdin ends.
pub fn serve() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let hub = runtime
        .block_on(LocalHub::builder().in_memory().start())
        .expect("a free port");
    println!("{}\n{}", hub.endpoint(), hub.token());
    for _ in std::io::stdin().lines() {
        let requests = hub.requests();
        println!("{}", requests.api + requests.resolver + requests.token);
    }
}
