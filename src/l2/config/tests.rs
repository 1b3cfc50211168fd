use std::path::PathBuf;

use super::*;

fn bucket(extra: &str) -> Result<L2Config, ConfigError> {
    L2Config::from_json(&format!(
        r#"{{"bucket_handle": "hf://buckets/o/b/p" {extra}}}"#
    ))
}

fn hf(config: &L2Config) -> &HfBucketConfig {
    match config.backend() {
        Backend::HfBucket(bucket) => bucket,
        Backend::ObjectStore(_) => panic!("not a bucket"),
    }
}

#[test]
fn a_token_is_never_printed() {
    let config = bucket(r#", "token": "hf_secret""#).unwrap();
    assert!(!format!("{config:?}").contains("hf_secret"));
    let store = L2Config::from_json(
        r#"{"type": "object_store", "url": "s3://b/p",
            "options": {"aws_secret_access_key": "hf_secret"}}"#,
    )
    .unwrap();
    let printed = format!("{store:?}");
    assert!(!printed.contains("hf_secret"), "{printed}");
    assert!(printed.contains("aws_secret_access_key"));
    for url in [
        "s3://me:hf_secret@b/p",
        "s3://b/p?token=hf_secret",
        "memory:///#hf_secret",
    ] {
        let json = format!(r#"{{"type": "object_store", "url": "{url}"}}"#);
        let error = L2Config::from_json(&json).unwrap_err().to_string();
        assert!(
            error.contains("'url'") && !error.contains("hf_secret"),
            "{error}"
        );
    }
    let error = L2Config::from_json(r#"{"bucket_handle": "https://hf_secret@h/b"}"#).unwrap_err();
    assert!(!error.to_string().contains("hf_secret"), "{error}");
    let error = bucket(r#", "token": ["hf_secret"]"#)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "L2 config: 'token' must be text or null, not an array"
    );
}

#[test]
fn the_token_comes_from_the_environment_first() {
    let set = |name: &str| (name == "HF_TOKEN").then(|| "env".to_owned());
    let unset = |_: &str| None;
    let empty = |_: &str| Some(String::new());
    let config = bucket(r#", "token": "own""#).unwrap();
    assert_eq!(hf(&config).resolve_token(set).as_deref(), Some("env"));
    assert_eq!(hf(&config).resolve_token(unset).as_deref(), Some("own"));
    assert_eq!(hf(&config).resolve_token(empty).as_deref(), Some("own"));
    let config = bucket(r#", "token": "own", "token_env": """#).unwrap();
    assert_eq!(hf(&config).resolve_token(set).as_deref(), Some("own"));
    let config = bucket(r#", "token": """#).unwrap();
    assert_eq!(hf(&config).resolve_token(unset), None);
}

#[test]
fn an_error_names_the_field_and_the_value() {
    for (extra, message) in [
        (
            r#", "num_workers": 4.0"#,
            "'num_workers' must be an integer of at least 1, not 4.0",
        ),
        (
            r#", "max_capacity_gb": "50""#,
            "'max_capacity_gb' must be a number of at least 0, not \"50\"",
        ),
        (
            r#", "eviction": {"eviction_policy": "LRU", "eviction_ratio": "x"}"#,
            "'eviction.eviction_ratio' must be a number, not \"x\"",
        ),
        (
            r#", "eviction": {"eviction_policy": "lru"}"#,
            "'eviction.eviction_policy' must be \"LRU\", \"ARC\", \"IsolatedLRU\", \"S3-FIFO\" or \"noop\", not \"lru\"",
        ),
        (
            r#", "key_layout": "flat""#,
            "'key_layout' must be \"ungrouped\" or \"grouped\", not \"flat\"",
        ),
        (
            r#", "key_layout": null"#,
            "'key_layout' must be text, not null",
        ),
    ] {
        assert_eq!(
            bucket(extra).unwrap_err().to_string(),
            format!("L2 config: {message}")
        );
    }
    for text in ["", "[]", "{", "5"] {
        assert!(matches!(
            L2Config::from_json(text),
            Err(ConfigError::Json { .. })
        ));
    }
}

#[test]
fn any_store_by_url() {
    let config = L2Config::from_json(
        r#"{"type": "object_store", "url": "file:///var/kv/a%20b/", "key_layout": "grouped",
            "options": {"a": "b", "n": 5, "f": true}, "num_workers": 9,
            "metadata_cache_ttl_secs": 1, "max_capacity_gb": 2,
            "eviction": {"eviction_policy": "noop"}}"#,
    )
    .unwrap();
    assert_eq!(config.object_prefix(), "var/kv/a b");
    assert_eq!(config.key_layout(), KeyLayout::Grouped);
    assert_eq!(config.num_workers(), 9);
    let Backend::ObjectStore(store) = config.backend() else {
        panic!("not by URL");
    };
    let options: Vec<_> = store
        .options()
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    assert_eq!(options, [("a", "b"), ("f", "true"), ("n", "5")]);
    assert!(!store.fsync());
    for url in ["file:/kv", "file://localhost/kv", "FILE:///kv"] {
        let json = format!(r#"{{"type": "object_store", "url": "{url}", "fsync": true}}"#);
        let config = L2Config::from_json(&json).unwrap();
        assert_eq!(config.object_prefix(), "kv", "{url}");
        let Backend::ObjectStore(store) = config.backend() else {
            panic!("not by URL");
        };
        assert!(store.fsync());
    }
    let refused = [
        (r#"{"type": "object_store"}"#, "'url' is required"),
        (
            r#"{"type": "object_store", "url": 5}"#,
            "'url' must be text",
        ),
        (
            r#"{"type": "object_store", "url": "nope"}"#,
            "'url' must be a URL",
        ),
        (
            r#"{"type": "object_store", "url": "memory:///", "options": []}"#,
            "'options' must be an object",
        ),
        (
            r#"{"type": "object_store", "url": "memory:///", "options": {"k": []}}"#,
            "'options.k' must be text",
        ),
        (
            r#"{"type": "object_store", "url": "file:///kv", "fsync": 1}"#,
            "'fsync' must be true or false, not 1",
        ),
        (
            r#"{"type": "object_store", "url": "file:kv"}"#,
            "a directory that does not begin at the root",
        ),
        (
            r#"{"type": "object_store", "url": "file://kv/pool"}"#,
            "a directory that does not begin at the root",
        ),
    ];
    for (json, message) in refused {
        let error = L2Config::from_json(json).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn a_tilde_is_the_home_directory() {
    let config = bucket(r#", "download_tmp_dir": "~/kv""#).unwrap();
    assert_eq!(hf(&config).download_tmp_dir(), "~/kv");
    let home = std::env::home_dir().unwrap();
    assert_eq!(hf(&config).scratch_dir(), home.join("kv"));
    let config = bucket(r#", "download_tmp_dir": "~other/kv""#).unwrap();
    assert_eq!(hf(&config).scratch_dir(), PathBuf::from("~other/kv"));
}

#[test]
fn tools_leave_eviction_and_listings_out() {
    let full = bucket(
        r#", "max_capacity_gb": 1, "resync_interval_secs": 5, "num_workers": 7,
            "eviction": {"eviction_policy": "LRU"}"#,
    )
    .unwrap();
    assert!(full.eviction().is_some() && full.recover_on_start());
    let looking = full.clone().without_eviction();
    assert_eq!(
        (looking.eviction(), looking.recover_on_start()),
        (None, true)
    );
    let quiet = looking.without_listings();
    assert!(!quiet.recover_on_start());
    assert_eq!(quiet.resync_interval_secs(), 0.0);
    assert_eq!(
        (quiet.num_workers(), quiet.max_capacity_bytes()),
        (7, 1 << 30)
    );
    assert!(full.without_listings().eviction().is_some());
}
