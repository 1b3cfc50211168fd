//! The command, as people and machines run it.

#![cfg(feature = "cli")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn hfbucket(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hfbucket"));
    command.args(args).env_remove("RUST_LOG");
    command
}

fn run(args: &[&str]) -> Output {
    hfbucket(args).output().expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the command prints UTF-8")
}

/// Runs a small demo with `--json`, which must succeed, and reads its report.
fn demo(args: &[&str]) -> Value {
    let mut all = vec!["demo", "--json", "--chunk-size", "10000", "--chunks", "6"];
    all.extend(args);
    let output = run(&all);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    serde_json::from_slice(&output.stdout).expect("one line of JSON and nothing else")
}

/// What holds for every demo with 3 prompts of 6 chunks of 10 000 bytes and room for 10 chunks.
fn assert_report(report: &Value) {
    assert_eq!(report["verified"], true, "{report}");
    // 2 shared chunks, half of the other 4.
    assert_eq!(report["lookup"]["expected_hits"], 4);
    assert_eq!(report["lookup"]["prefix_hits"], 4);
    assert_eq!(report["verified_bytes"], 40_000);
    let names: Vec<_> = report["phases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|phase| phase["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["store", "look up", "load", "overfill"]);
    let stored = &report["phases"][0];
    assert_eq!(
        (&stored["chunks"], &stored["bytes"]),
        (&14.into(), &140_000.into())
    );
    let eviction = &report["eviction"];
    let number = |name: &str| eviction[name].as_u64().unwrap();
    assert_eq!(number("usage_bytes"), number("listed_bytes"));
    assert!(number("usage_bytes") <= 180_000, "{eviction}");
    let left = number("stored_chunks") - number("evicted_chunks");
    assert_eq!(left * 10_000, number("usage_bytes"));
    assert!(number("evicted_chunks") > 0);
}

const ROOM: [&str; 4] = ["--prompts", "3", "--capacity", "200000"];

#[test]
fn the_demo_runs_on_a_local_hub_by_default_and_counts_requests() {
    let report = demo(&ROOM);
    assert_report(&report);
    let spent = &report["phases"][0]["requests"];
    assert!(spent["api"].as_u64().unwrap() > 0, "{spent}");
    assert!(spent["cas"].as_u64().unwrap() > 0, "{spent}");
    // Six chunks at once: they share requests, how many depends on who comes first.
    let looked_up = report["phases"][1]["requests"]["api"].as_u64().unwrap();
    assert!((1..=3).contains(&looked_up), "{looked_up}");
}

#[test]
fn the_demo_runs_on_memory_and_files_and_leaves_nothing() {
    assert_report(&demo(&[&ROOM[..], &["--url", "memory:///"]].concat()));
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("mine"), "kept").unwrap();
    let url = format!("file://{}", dir.path().display());
    let report = demo(&[&ROOM[..], &["--url", &url]].concat());
    assert_report(&report);
    assert_eq!(report["phases"][0]["requests"], Value::Null);
    let mut files = Vec::new();
    let mut folders = vec![dir.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    assert_eq!(files, [dir.path().join("mine")]);
}

#[test]
fn the_demo_takes_an_adapters_json() {
    let json = r#"{"type": "object_store", "url": "memory:///p", "max_capacity_gb": 0.0001862645149230957,
        "eviction": {"eviction_policy": "LRU", "trigger_watermark": 0.9, "eviction_ratio": 0.1}}"#;
    assert_report(&demo(&[&ROOM[..], &["--l2-adapter", json]].concat()));
    let json = r#"{"type": "object_store", "url": "memory:///p"}"#;
    let report = demo(&["--l2-adapter", json]);
    assert_eq!(
        (&report["verified"], &report["eviction"]),
        (&true.into(), &Value::Null)
    );
}

#[test]
fn a_capacity_that_the_prompts_do_not_fit_into_is_refused() {
    let args = [
        "demo",
        "--chunk-size",
        "1000",
        "--capacity",
        "10KiB",
        "--url",
        "memory:///",
    ];
    let output = run(&args);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stderr);
    assert!(
        shown.contains("--capacity") && shown.contains("9.0 KiB"),
        "{shown}"
    );
}

#[cfg(unix)]
#[test]
fn a_demo_that_is_stopped_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}", dir.path().display());
    let mut demo = hfbucket(&["demo", "--quiet", "--url", &url, "--prompts", "5000"])
        .args(["--chunk-size", "64KiB", "--capacity", "0"])
        .spawn()
        .unwrap();
    let folder = dir.path().join("hfbucket-demo");
    let files = || std::fs::read_dir(&folder).map_or(0, Iterator::count);
    // Well under way, and far from its end.
    while files() < 20 {
        assert!(demo.try_wait().unwrap().is_none(), "it goes on");
        std::thread::yield_now();
    }
    let kill = Command::new("kill")
        .args(["-TERM", &demo.id().to_string()])
        .status()
        .unwrap();
    assert!(kill.success());
    assert_eq!(demo.wait().unwrap().code(), Some(130));
    assert_eq!(files(), 0);
}

#[test]
fn people_get_a_table_and_quiet_ones_nothing() {
    let small = ["demo", "--chunk-size", "1KiB"];
    let output = run(&small);
    assert!(output.status.success());
    let shown = text(&output.stdout);
    assert!(shown.contains("All verified."), "{shown}");
    assert!(shown.contains("resolver"), "{shown}");
    assert!(
        !shown.contains('\u{1b}'),
        "no escape codes in a pipe: {shown:?}"
    );
    assert_eq!(text(&output.stderr), "", "no progress in a pipe");
    let output = run(&[&small[..], &["--quiet"]].concat());
    assert!(output.status.success());
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        (String::new(), String::new())
    );
}

#[test]
fn wrong_arguments_are_named_and_end_with_2() {
    for (args, named) in [
        (&["demo", "--chunk-size", "0"][..], "--chunk-size"),
        (&["demo", "--chunk-size", "2 parsecs"], "2 parsecs"),
        (&["demo", "--chunks", "1"], "--chunks"),
        (&["demo", "--capacity", "-1"], "-1"),
        (
            &["demo", "--url", "memory:///", "--endpoint", "http://x"],
            "--endpoint",
        ),
        (&["serve", "--port", "70000"], "70000"),
        (&["serve", "--host", "nowhere"], "nowhere"),
        (&["frobnicate"], "frobnicate"),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(
            text(&output.stderr).contains(named),
            "{}",
            text(&output.stderr)
        );
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn failures_are_one_line_and_end_with_1() {
    for (args, named) in [
        (&["demo", "--url", "ftp://x/y"][..], "'ftp'"),
        (&["demo", "--url", "memory:///?x=1"], "a query"),
        (&["demo", "--l2-adapter", "{"], "L2 config"),
        (
            &["demo", "--l2-adapter", r#"{"bucket_handle": "x"}"#],
            "bucket_handle",
        ),
        (&["demo", "--endpoint", "http://127.0.0.1:1"], "127.0.0.1:1"),
        (&["demo", "--endpoint", "nonsense"], "nonsense"),
        (&["serve", "--data-dir", "/dev/null/x"], "/dev/null/x"),
    ] {
        let output = hfbucket(args)
            .env("HF_TOKEN", "hf_verysecret")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let shown = text(&output.stderr);
        assert!(
            shown.starts_with("error: ") && shown.contains(named),
            "{shown}"
        );
        assert_eq!(shown.lines().count(), 1, "{shown}");
        assert!(!shown.contains("hf_verysecret"), "{shown}");
    }
}

#[cfg(unix)]
#[test]
fn serve_serves_until_it_is_told_to_stop() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    for signal in ["-TERM", "-INT"] {
        let mut server = hfbucket(&["serve", "--json", "--data-dir", data.to_str().unwrap()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let started: Value = serde_json::from_str(&line).unwrap();
        let endpoint = started["endpoint"].as_str().unwrap();
        assert!(endpoint.starts_with("http://127.0.0.1:"), "{endpoint}");
        let scratch = started["xet_cache"].as_str().unwrap();
        assert!(std::path::Path::new(scratch).is_dir());

        let demo = hfbucket(&[
            "demo",
            "--quiet",
            "--chunk-size",
            "1KiB",
            "--chunks",
            "3",
            "--endpoint",
            endpoint,
        ])
        .env("HF_TOKEN", started["token"].as_str().unwrap())
        .output()
        .unwrap();
        assert!(demo.status.success(), "{}", text(&demo.stderr));

        let kill = Command::new("kill")
            .args([signal, &server.id().to_string()])
            .status()
            .unwrap();
        assert!(kill.success());
        assert_eq!(server.wait().unwrap().code(), Some(0), "{signal}");
        assert!(
            !std::path::Path::new(scratch).exists(),
            "its scratch folder is gone"
        );
    }
}
