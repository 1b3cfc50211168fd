//! Tests whose client keeps a cache in the user's home and takes no other folder.
//!
//! hf-xet remembers there which chunks a CAS holds, by the CAS's address. A hub of an earlier test may
//! have had the same port, so such a test runs in a process of its own, with a home of its own.

use std::future::Future;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

const CHILD: &str = "HFBUCKET_TEST_IN_OWN_PROCESS";

/// Runs `body` in a new process of this test binary. `name` is the path of the calling `#[test]`.
pub fn run<F: Future<Output = ()>>(name: &str, body: F) {
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        return runtime.block_on(body);
    }
    let home = TempDir::new().expect("a temporary folder");
    let exe = std::env::current_exe().expect("the path of this test binary");
    let mut command = Command::new(exe);
    command
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, name);
    clean_environment(&mut command, home.path());
    let output = command.output().expect("this test binary runs again");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{name} in its own process: {}\n{printed}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr),
    );
}

/// Takes the user's Hugging Face settings away from a child, and gives it an empty home.
pub fn clean_environment(command: &mut Command, home: &Path) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HF_") {
            command.env_remove(&name);
        }
    }
    command
        .env("HF_HOME", home)
        .env("HF_XET_CACHE", home.join("xet"))
        .env("HF_XET_TELEMETRY_ENABLED", "0")
        .env("HF_HUB_DISABLE_TELEMETRY", "1");
}
