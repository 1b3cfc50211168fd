//! The real Python `huggingface_hub` on LocalHub. `scripts/test` installs it; see tests/python.

#![cfg(feature = "local-hub")]

mod support;

use std::path::PathBuf;
use std::process::Command;

use bytes::Bytes;
use futures::TryStreamExt;
use hfbucket::local_hub::{Class, Fault, LocalHub, LocalHubBuilder, TokenGrant};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use support::{Fixture, noise, own_process};
use tempfile::TempDir;

const OWNER: &str = "hf_python_owner";
const READER: &str = "hf_python_reader";
const OTHER: &str = "hf_python_other";

/// A hub that knows an owner, the same user with a token that only reads, and somebody else.
fn hub() -> LocalHubBuilder {
    LocalHub::builder()
        .with_token(TokenGrant::new(OWNER, "alice").owner_of("my-org"))
        .with_token(
            TokenGrant::new(READER, "alice")
                .owner_of("my-org")
                .read_only(),
        )
        .with_token(TokenGrant::new(OTHER, "bob"))
}

async fn start(builder: LocalHubBuilder) -> Fixture {
    Fixture::with_hub(builder.start().await.expect("a hub on a free port"))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The interpreter of `HFBUCKET_PYTHON`, or else the one that `scripts/test` sets up.
fn interpreter() -> PathBuf {
    if let Some(named) = std::env::var_os("HFBUCKET_PYTHON") {
        return named.into();
    }
    let installed = root().join("target/python-env/bin/python");
    assert!(
        installed.exists(),
        "there is no Python with huggingface_hub at {}: run scripts/test, which installs it there \
         and runs all tests, or set HFBUCKET_PYTHON to an interpreter that has the packages of \
         tests/python/requirements.txt",
        installed.display(),
    );
    installed
}

/// Runs a script of tests/python against a hub, and returns what it printed.
async fn python(hub: &LocalHub, script: &str, arguments: &[&str]) -> String {
    let (success, printed) = run(hub, script, arguments).await;
    assert!(success, "{script} {arguments:?}\n{printed}");
    printed
}

/// Whether the script succeeded, and what it printed.
async fn run(hub: &LocalHub, script: &str, arguments: &[&str]) -> (bool, String) {
    let home = TempDir::new().expect("a temporary folder");
    let mut command = script_command(script, hub.endpoint(), OWNER, home.path());
    command
        .args(arguments)
        .env("HFBUCKET_TEST_READ_TOKEN", READER)
        .env("HFBUCKET_TEST_OTHER_TOKEN", OTHER);
    finish(command).await
}

fn script_command(script: &str, endpoint: &str, token: &str, home: &std::path::Path) -> Command {
    let mut command = Command::new(interpreter());
    own_process::clean_environment(&mut command, home);
    command
        .arg(root().join("tests/python").join(script))
        .env("HF_ENDPOINT", endpoint)
        .env("HF_TOKEN", token)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONUTF8", "1");
    command
}

async fn finish(command: Command) -> (bool, String) {
    let mut command = tokio::process::Command::from(command);
    let output = command.kill_on_drop(true).output().await;
    let output = output.expect("the Python interpreter starts");
    let printed = [output.stderr, output.stdout].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&printed).into_owned(),
    )
}

/// All checks that ran passed, and none was left out.
fn assert_all_passed(printed: &str, at_least: u32) {
    let summary = printed.lines().last().unwrap_or_default();
    let passed = summary
        .strip_suffix(" passed, 0 failed, 0 skipped")
        .and_then(|passed| passed.parse::<u32>().ok());
    assert!(passed.is_some_and(|passed| passed >= at_least), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_check_passes() {
    let fixture = start(hub()).await;
    assert_all_passed(&python(&fixture.hub, "check_hub.py", &[]).await, 77);
}

/// The Hub may answer with few items, or none, and a link to more.
#[tokio::test(flavor = "multi_thread")]
async fn listings_in_short_pages() {
    let fixture = start(hub().with_short_pages(true)).await;
    let parts = ["names.", "listing.", "copying.", "syncing.", "filesystem."];
    assert_all_passed(&python(&fixture.hub, "check_hub.py", &parts).await, 35);
}

#[derive(serde::Deserialize)]
struct FixedObject {
    name: String,
    size: usize,
    seed: u64,
}

/// The objects of the cross test, which tests/python/write_read.py writes and verifies too.
fn fixed_objects() -> Vec<(Path, Bytes)> {
    let text = include_str!("python/fixed_objects.json");
    let objects: Vec<FixedObject> = serde_json::from_str(text).expect("fixed_objects.json");
    let read = |object: FixedObject| {
        let path = Path::parse(&object.name).expect("a path that object_store takes");
        (path, Bytes::from(noise(object.seed, object.size)))
    };
    objects.into_iter().map(read).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn python_reads_what_hfbucket_writes() {
    let fixture = start(hub()).await;
    let store = fixture.store("cross/some/prefix");
    let objects = fixed_objects();
    for (path, data) in &objects {
        store.put(path, data.clone().into()).await.unwrap();
    }
    let printed = python(
        &fixture.hub,
        "write_read.py",
        &["verify", "my-org/cross", "some/prefix"],
    )
    .await;
    assert!(
        printed.contains(&format!("verify: {} objects", objects.len())),
        "{printed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn hfbucket_reads_what_python_writes() {
    let fixture = start(hub()).await;
    python(
        &fixture.hub,
        "write_read.py",
        &["write", "my-org/cross", "some/prefix"],
    )
    .await;
    let store = fixture.store("cross/some/prefix");
    let mut objects = fixed_objects();
    for (path, data) in &objects {
        let got = store.get(path).await.unwrap();
        assert_eq!(got.meta.size, data.len() as u64, "{path}");
        assert!(
            got.bytes().await.unwrap() == *data,
            "{path} has other bytes"
        );
    }
    let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
    let mut listed: Vec<_> = listed
        .into_iter()
        .map(|meta| (meta.location, meta.size))
        .collect();
    listed.sort();
    objects.sort();
    let written: Vec<_> = objects
        .into_iter()
        .map(|(path, data)| (path, data.len() as u64))
        .collect();
    assert_eq!(listed, written);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_python_writes_survives_a_restart() {
    let folder = TempDir::new().expect("a temporary folder");
    let first = start(hub().data_dir(folder.path())).await;
    python(&first.hub, "write_read.py", &["write", "my-org/kept"]).await;
    first.hub.shutdown().await;
    let second = start(hub().data_dir(folder.path())).await;
    python(&second.hub, "write_read.py", &["verify", "my-org/kept"]).await;
}

/// Injected faults look like those of the Hub: Python waits as it is told, and goes on.
#[tokio::test(flavor = "multi_thread")]
async fn python_retries_after_faults() {
    let fixture = start(hub()).await;
    let hub = &fixture.hub;
    hub.inject(Fault::status(503).on_route("batch"));
    hub.inject(Fault::rate_limited(Class::Api, 0).on_route("batch"));
    hub.inject(Fault::drop_after().on_route("batch"));
    python(hub, "write_read.py", &["write", "my-org/faults"]).await;
    assert_eq!(hub.pending_faults(), 0);
    python(hub, "write_read.py", &["verify", "my-org/faults"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_names_what_failed_in_a_batch() {
    for status in [200, 422] {
        let fixture = start(hub()).await;
        fixture
            .hub
            .inject(Fault::partial_batch(status, "logs.json"));
        let write = ["write", "my-org/partial"];
        let (success, printed) = run(&fixture.hub, "write_read.py", &write).await;
        assert!(!success, "{status}: {printed}");
        assert!(printed.contains("BucketBatchError"), "{status}: {printed}");
        assert!(printed.contains("logs.json: "), "{status}: {printed}");
        let verify = ["verify", "my-org/partial"];
        let (_, printed) = run(&fixture.hub, "write_read.py", &verify).await;
        assert_eq!(printed.trim(), "missing: logs.json", "{status}");
    }
}

/// The same checks against the command, as a user runs it.
#[cfg(feature = "cli")]
mod serve {
    use std::process::Stdio;

    use serde_json::Value;
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::process::{Child, Command};

    use super::{TempDir, finish, script_command};

    /// Starts `hfbucket serve` on a data folder, and returns what it printed first.
    async fn serve(folder: &TempDir) -> (Child, Value) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_hfbucket"))
            .args(["--json", "serve", "--data-dir"])
            .arg(folder.path())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the command starts");
        let stdout = child.stdout.take().expect("a pipe");
        let line = BufReader::new(stdout).lines().next_line().await;
        let line = line.expect("UTF-8").expect("a line before the end");
        (child, serde_json::from_str(&line).expect("a line of JSON"))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_check_passes() {
        let folder = TempDir::new().expect("a temporary folder");
        let (mut child, started) = serve(&folder).await;
        let text = |key: &str| started[key].as_str().expect("a text").to_owned();

        let home = TempDir::new().expect("a temporary folder");
        let (endpoint, token) = (text("endpoint"), text("token"));
        let checks = script_command("check_hub.py", &endpoint, &token, home.path());
        let (success, printed) = finish(checks).await;
        // The command knows one token; what needs others runs on a hub in process.
        let summary = printed.lines().last().unwrap_or_default();
        assert!(
            success && summary.ends_with(" passed, 0 failed, 4 skipped"),
            "{printed}"
        );

        let pid = child.id().expect("still running").to_string();
        let killed = Command::new("kill").args(["-INT", &pid]).status().await;
        assert!(killed.expect("kill runs").success());
        assert!(child.wait().await.expect("it ends").success());
    }
}
