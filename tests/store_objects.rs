//! Objects of every size and name, written and read back byte for byte.

#![cfg(feature = "local-hub")]

mod support;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, WriteMultipart,
};
use support::{Fixture, noise};

const ZERO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

#[tokio::test(flavor = "multi_thread")]
async fn sizes_from_nothing_to_several_xorbs() {
    let fixture = Fixture::start().await;
    let store = fixture.store("sizes");
    for (seed, len) in [0, 1, 100, 64 << 10, (1 << 20) + 1, 70 << 20]
        .into_iter()
        .enumerate()
    {
        let path = Path::from(format!("{len}.bin"));
        let data = Bytes::from(noise(seed as u64, len));
        let put = store.put(&path, data.clone().into()).await.unwrap();
        let meta = store.head(&path).await.unwrap();
        assert_eq!(meta.size, len as u64);
        assert_eq!(meta.e_tag, put.e_tag);
        assert_eq!(meta.version, meta.e_tag);
        assert_eq!(meta.e_tag.as_deref() == Some(ZERO_HASH), len == 0);
        let read = store.get(&path).await.unwrap().bytes().await.unwrap();
        assert!(read == data, "{len} bytes read back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_of_many_parts_is_one_object() {
    let fixture = Fixture::start().await;
    let store = fixture.store("parts");
    let parts: Vec<Bytes> = (0..10)
        .map(|n| noise(n, 100_000 + n as usize).into())
        .collect();
    let whole = parts.concat();
    let path = Path::from("x");
    store
        .put(&path, PutPayload::from_iter(parts))
        .await
        .unwrap();
    let read = store.get(&path).await.unwrap().bytes().await.unwrap();
    assert!(read == whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_names_are_kept_to_the_letter() {
    let fixture = Fixture::start().await;
    let store = fixture.store("names/a prefix");
    let names = [
        "with space",
        "percent%41",
        "%",
        "hash#1",
        "question?x=1",
        "plus+plus",
        "amp&ersand",
        "equal=sign;semi,comma",
        "漢字/日本語.txt",
        "emoji/🦀🚀",
        "e\u{301}-nfd",
        "\u{e9}-nfc",
        "logs",
        "logs.json",
        "logs_old/x",
        "logs/x",
        "a~b!c$d'e(f)g*h@i:j[k]l{m}n|o^p`q\"r<s>t",
    ];
    for (n, name) in names.iter().enumerate() {
        let path = Path::parse(name).unwrap();
        store.put(&path, format!("{n}").into()).await.unwrap();
    }
    for (n, name) in names.iter().enumerate() {
        let path = Path::parse(name).unwrap();
        let read = store.get(&path).await.unwrap().bytes().await.unwrap();
        assert_eq!(read, format!("{n}"), "{name}");
    }
    let mut listed: Vec<String> = store
        .list(None)
        .map_ok(|meta| meta.location.to_string())
        .try_collect()
        .await
        .unwrap();
    listed.sort();
    let mut expected = names.map(str::to_owned);
    expected.sort();
    assert_eq!(listed, expected);

    // The Hub matches prefixes as strings; a prefix here is a directory.
    let below: Vec<String> = store
        .list(Some(&Path::from("logs")))
        .map_ok(|meta| meta.location.to_string())
        .try_collect()
        .await
        .unwrap();
    assert_eq!(below, ["logs/x"]);
    let level = store
        .list_with_delimiter(Some(&Path::from("logs")))
        .await
        .unwrap();
    assert_eq!(level.objects.len(), 1);
    assert!(level.common_prefixes.is_empty());
    let root = store.list_with_delimiter(None).await.unwrap();
    let dirs: Vec<_> = root
        .common_prefixes
        .iter()
        .map(|path| path.as_ref())
        .collect();
    assert_eq!(dirs, ["emoji", "logs", "logs_old", "漢字"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_objects_under_one_prefix() {
    let fixture = Fixture::start().await;
    let store = fixture.store("many");
    let paths: Vec<_> = (0..5000).map(|n| Path::from(format!("p/{n:04}"))).collect();
    futures::stream::iter(&paths)
        .map(|path| store.put(path, path.as_ref().to_owned().into()))
        .buffer_unordered(500)
        .try_collect::<Vec<_>>()
        .await
        .unwrap();
    store
        .put(&Path::from("p.txt"), "sibling".into())
        .await
        .unwrap();

    let prefix = Path::from("p");
    let mut listed: Vec<_> = store
        .list(Some(&prefix))
        .map_ok(|meta| meta.location)
        .try_collect()
        .await
        .unwrap();
    listed.sort();
    assert_eq!(listed, paths);
    let later: Vec<_> = store
        .list_with_offset(Some(&prefix), &paths[4989])
        .try_collect()
        .await
        .unwrap();
    assert_eq!(later.len(), 10);
    assert_eq!(
        store
            .list_with_delimiter(Some(&prefix))
            .await
            .unwrap()
            .objects
            .len(),
        5000
    );

    let before = fixture.hub.requests();
    let deleted: Vec<_> = store
        .delete_stream(futures::stream::iter(paths.clone()).map(Ok).boxed())
        .try_collect()
        .await
        .unwrap();
    assert_eq!(deleted, paths, "in the order given");
    let spent = fixture.hub.requests().api - before.api;
    assert_eq!(spent, 5, "one batch per thousand");
    let left: Vec<_> = store.list(None).try_collect().await.unwrap();
    assert_eq!(left.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_all_kinds() {
    let fixture = Fixture::start().await;
    let store = fixture.store("ranges");
    let path = Path::from("x");
    let data = noise(7, 300_000);
    store.put(&path, data.clone().into()).await.unwrap();
    let get = async |range: GetRange| {
        let options = GetOptions::new().with_range(Some(range));
        let result = store.get_opts(&path, options).await?;
        let range = result.range.clone();
        Ok::<_, Error>((range, result.bytes().await?))
    };
    let (range, bytes) = get(GetRange::Bounded(10..20)).await.unwrap();
    assert_eq!((range, &bytes[..]), (10..20, &data[10..20]));
    let (range, bytes) = get(GetRange::Bounded(299_990..400_000)).await.unwrap();
    assert_eq!((range, &bytes[..]), (299_990..300_000, &data[299_990..]));
    let (range, bytes) = get(GetRange::Offset(150_000)).await.unwrap();
    assert_eq!((range, &bytes[..]), (150_000..300_000, &data[150_000..]));
    let (range, bytes) = get(GetRange::Suffix(5)).await.unwrap();
    assert_eq!((range, &bytes[..]), (299_995..300_000, &data[299_995..]));
    let (_, bytes) = get(GetRange::Suffix(1 << 40)).await.unwrap();
    assert_eq!(bytes, data);
    for bad in [
        GetRange::Bounded(300_000..300_001),
        GetRange::Offset(300_000),
        #[expect(clippy::reversed_empty_ranges, reason = "the bad input")]
        GetRange::Bounded(20..10),
    ] {
        let error = get(bad.clone()).await.unwrap_err();
        assert!(matches!(error, Error::Generic { .. }), "{bad:?}: {error}");
    }

    let before = fixture.hub.requests();
    let ranges = [0..10, 299_000..299_500, 5..50_000, 100_000..100_001];
    let parts = store.get_ranges(&path, &ranges).await.unwrap();
    for (part, range) in parts.iter().zip(&ranges) {
        assert_eq!(part[..], data[range.start as usize..range.end as usize]);
    }
    assert_eq!(fixture.hub.requests().api - before.api, 1, "one look-up");
    assert!(
        store
            .get_ranges(&path, &[0..10, 400_000..400_001])
            .await
            .is_err()
    );
    assert!(store.get_ranges(&path, &[]).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_read_without_the_hub_and_outlives_its_path() {
    let fixture = Fixture::start().await;
    let store = fixture.store("versions");
    let path = Path::from("x");
    let first = store
        .put(&path, "first".into())
        .await
        .unwrap()
        .version
        .unwrap();
    let second = store
        .put(&path, "second".into())
        .await
        .unwrap()
        .version
        .unwrap();
    assert_ne!(first, second);
    let read = async |store: &hfbucket::HfBucket, version: &str| {
        let options = GetOptions::new().with_version(Some(version));
        store.get_opts(&path, options).await?.bytes().await
    };
    assert_eq!(read(&store, &second).await.unwrap(), "second");
    let before = fixture.hub.requests();
    assert_eq!(read(&store, &first).await.unwrap(), "first");
    assert_eq!(fixture.hub.requests().api, before.api);
    assert_eq!(fixture.hub.requests().resolver, before.resolver);

    // Another process has seen neither: it asks the CAS for the size.
    let fresh = fixture.store("versions");
    assert_eq!(read(&fresh, &first).await.unwrap(), "first");
    let unknown = "ab".repeat(32);
    let error = read(&fresh, &unknown).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    let error = read(&fresh, "v1").await.unwrap_err();
    assert!(error.to_string().contains("'v1'"), "{error}");

    // A path is read through the Hub in this mode; a version cannot be.
    let mode = hfbucket::DownloadMode::Http;
    let http = fixture
        .builder("versions")
        .with_download_mode(mode)
        .build()
        .unwrap();
    assert_eq!(read(&http, &first).await.unwrap(), "first");
    let key = hfbucket::HfBucketConfigKey::DisableXet;
    let plain = fixture
        .builder("versions")
        .with_config(key, "true")
        .build()
        .unwrap();
    let error = read(&plain, &first).await.unwrap_err();
    assert!(matches!(error, Error::NotSupported { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_head_or_listing_has_just_shown_is_read_without_the_hub() {
    let fixture = Fixture::start().await;
    let (store, other) = (fixture.store("shown"), fixture.store("shown"));
    let path = Path::from("x");
    store.put(&path, "first".into()).await.unwrap();
    let read = async |e_tag: &Option<String>| {
        let options = GetOptions::new().with_if_match(e_tag.clone());
        store.get_opts(&path, options).await?.bytes().await
    };
    let api = || fixture.hub.requests().api;

    // After a head, and after a listing.
    for listed in [false, true] {
        let shown = match listed {
            false => store.head(&path).await.unwrap(),
            true => store.list(None).try_next().await.unwrap().unwrap(),
        };
        read(&shown.e_tag).await.unwrap();
        let before = api();
        assert_eq!(read(&shown.e_tag).await.unwrap(), "first");
        assert_eq!(api(), before);
    }
    let first = store.head(&path).await.unwrap().e_tag;

    // Another writer's change is not seen for a moment: the content asked for is read.
    other.put(&path, "theirs".into()).await.unwrap();
    assert_eq!(read(&first).await.unwrap(), "first");
    // Another content than the one shown is asked for: the Hub decides.
    let theirs = other.head(&path).await.unwrap().e_tag;
    assert_eq!(read(&theirs).await.unwrap(), "theirs");

    // This store's own change is seen at once.
    store.put(&path, "mine".into()).await.unwrap();
    let error = read(&theirs).await.unwrap_err();
    assert!(matches!(error, Error::Precondition { .. }), "{error}");
    store.head(&path).await.unwrap();
    store.delete(&path).await.unwrap();
    let error = read(&theirs).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn content_types_are_kept_and_guessed() {
    let fixture = Fixture::start().await;
    let store = fixture.store("types");
    let content_type = async |path: &str| {
        let result = store.get(&Path::from(path)).await.unwrap();
        result
            .attributes
            .get(&Attribute::ContentType)
            .map(|value| value.to_string())
    };
    let attributes = Attributes::from_iter([(Attribute::ContentType, "x/y")]);
    let options = PutOptions::from(attributes.clone());
    store
        .put_opts(&Path::from("a"), "1".into(), options)
        .await
        .unwrap();
    assert_eq!(content_type("a").await.as_deref(), Some("x/y"));
    store.put(&Path::from("b.json"), "{}".into()).await.unwrap();
    assert_eq!(
        content_type("b.json").await.as_deref(),
        Some("application/json")
    );
    store
        .copy(&Path::from("a"), &Path::from("c"))
        .await
        .unwrap();
    assert_eq!(content_type("c").await.as_deref(), Some("x/y"));
    let options = PutMultipartOptions::from(attributes);
    let mut upload = store
        .put_multipart_opts(&Path::from("d"), options)
        .await
        .unwrap();
    upload.put_part("1".into()).await.unwrap();
    upload.complete().await.unwrap();
    assert_eq!(content_type("d").await.as_deref(), Some("x/y"));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_attributes_are_refused_and_tags_ignored() {
    let fixture = Fixture::start().await;
    let store = fixture.store("attributes");
    let path = Path::from("a");
    let attributes = Attributes::from_iter([(Attribute::CacheControl, "no-store")]);
    let error = store
        .put_opts(&path, "1".into(), attributes.clone().into())
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NotImplemented { .. }), "{error}");
    assert!(error.to_string().contains("CacheControl"), "{error}");
    let options = PutMultipartOptions::from(attributes);
    assert!(store.put_multipart_opts(&path, options).await.is_err());
    assert!(store.head(&path).await.is_err(), "nothing was written");
    let mut tags = object_store::TagSet::default();
    tags.push("key", "value");
    store
        .put_opts(&path, "1".into(), tags.into())
        .await
        .unwrap();
    assert_eq!(store.head(&path).await.unwrap().size, 1);
}

/// On a runtime of one thread hf-xet brings threads of its own.
#[tokio::test]
async fn one_thread_is_enough() {
    let fixture = Fixture::start().await;
    let store = fixture.store("thread");
    let (path, data) = (Path::from("a"), noise(9, 3 << 20));
    store.put(&path, data.clone().into()).await.unwrap();
    assert!(store.get(&path).await.unwrap().bytes().await.unwrap() == data);
    let mut upload = store.put_multipart(&path).await.unwrap();
    upload.put_part("parts".into()).await.unwrap();
    upload.complete().await.unwrap();
    assert_eq!(
        store.get(&path).await.unwrap().bytes().await.unwrap(),
        "parts"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn conditional_writes_say_what_to_do() {
    let fixture = Fixture::start().await;
    let store = fixture.store("conditions");
    let (a, b) = (Path::from("a"), Path::from("b"));
    store.put(&a, "1".into()).await.unwrap();
    let version = store.head(&a).await.unwrap();
    let update = PutMode::Update(object_store::UpdateVersion {
        e_tag: version.e_tag,
        version: None,
    });
    let errors = [
        store
            .put_opts(&b, "2".into(), PutMode::Create.into())
            .await
            .unwrap_err(),
        store
            .put_opts(&a, "2".into(), update.into())
            .await
            .unwrap_err(),
        store.copy_if_not_exists(&a, &b).await.unwrap_err(),
        store.rename_if_not_exists(&a, &b).await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::NotImplemented { .. }), "{error}");
        assert!(error.to_string().contains("S3 gateway"), "{error}");
    }
    assert!(store.head(&b).await.is_err(), "nothing was written");
    assert_eq!(store.get(&a).await.unwrap().bytes().await.unwrap(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_and_renames_move_no_bytes() {
    let fixture = Fixture::start().await;
    let store = fixture.store("copies");
    let path = Path::from;
    let data = noise(3, 1 << 20);
    store.put(&path("a"), data.clone().into()).await.unwrap();
    let before = fixture.hub.requests();
    store.copy(&path("a"), &path("b")).await.unwrap();
    store.rename(&path("b"), &path("c")).await.unwrap();
    store.rename(&path("c"), &path("c")).await.unwrap();
    assert_eq!(fixture.hub.requests().cas, before.cas);
    let mut names: Vec<_> = store
        .list(None)
        .map_ok(|meta| meta.location.to_string())
        .try_collect()
        .await
        .unwrap();
    names.sort();
    assert_eq!(names, ["a", "c"]);
    assert_eq!(
        store.get(&path("c")).await.unwrap().bytes().await.unwrap(),
        data
    );
    for error in [
        store.copy(&path("none"), &path("c")).await.unwrap_err(),
        store.rename(&path("none"), &path("c")).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }
    assert!(
        store.head(&path("c")).await.is_ok(),
        "the target is untouched"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn multipart_streams_and_abort_leaves_nothing() {
    let fixture = Fixture::start().await;
    let store = fixture.store("multipart");
    let path = Path::from("big");
    let data = noise(11, 30 << 20);
    let upload = store.put_multipart(&path).await.unwrap();
    let mut writer = WriteMultipart::new_with_chunk_size(upload, 5 << 20);
    for piece in data.chunks(1 << 20) {
        writer.wait_for_capacity(2).await.unwrap();
        writer.write(piece);
    }
    writer.finish().await.unwrap();
    let read = store.get(&path).await.unwrap().bytes().await.unwrap();
    assert!(read == data);

    let gone = Path::from("gone");
    let mut upload = store.put_multipart(&gone).await.unwrap();
    upload.put_part(noise(12, 6 << 20).into()).await.unwrap();
    upload.abort().await.unwrap();
    assert!(upload.put_part("more".into()).await.is_err());
    assert!(upload.complete().await.is_err());
    let mut dropped = store.put_multipart(&gone).await.unwrap();
    dropped.put_part("x".into()).await.unwrap();
    drop(dropped);
    let names: Vec<_> = store.list(None).try_collect().await.unwrap();
    assert_eq!(names.len(), 1);

    let mut empty = store.put_multipart(&Path::from("empty")).await.unwrap();
    empty.complete().await.unwrap();
    assert_eq!(store.head(&Path::from("empty")).await.unwrap().size, 0);
}

/// An upload that is dropped or aborted at the wrong moment must not spoil those after it.
#[tokio::test(flavor = "multi_thread")]
async fn uploads_go_on_after_ones_that_were_dropped() {
    let fixture = Fixture::start().await;
    for round in 0..30 {
        let store = fixture.store("dropped");
        // Under way all the time.
        let mut steady = store.put_multipart(&Path::from("steady")).await.unwrap();
        steady.put_part("steady ".into()).await.unwrap();
        let path = Path::from("x");
        let mut dropped = store.put_multipart(&path).await.unwrap();
        let part = dropped.put_part(noise(round, 100_000).into());
        drop(dropped);
        drop(part);
        let mut aborted = store.put_multipart(&path).await.unwrap();
        aborted.abort().await.unwrap();
        steady.put_part("goes on".into()).await.unwrap();
        steady.complete().await.unwrap();
        let content = format!("round {round}");
        store.put(&path, content.clone().into()).await.unwrap();
        let mut upload = store.put_multipart(&Path::from("y")).await.unwrap();
        upload.put_part("y".into()).await.unwrap();
        upload.complete().await.unwrap();
        assert_eq!(
            store.get(&path).await.unwrap().bytes().await.unwrap(),
            content
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_mode_reads_the_same() {
    let fixture = Fixture::start().await;
    let store = fixture.store("http");
    let data = noise(5, 2 << 20);
    let path = Path::parse("odd name%20#?.bin").unwrap();
    store.put(&path, data.clone().into()).await.unwrap();
    store.put(&Path::from("empty"), "".into()).await.unwrap();
    let http = fixture
        .builder("http")
        .with_download_mode(hfbucket::DownloadMode::Http)
        .build()
        .unwrap();
    assert!(http.get(&path).await.unwrap().bytes().await.unwrap() == data);
    assert_eq!(
        http.get_range(&path, 1_000_000..1_000_100).await.unwrap()[..],
        data[1_000_000..1_000_100]
    );
    assert!(
        http.get(&Path::from("empty"))
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap()
            .is_empty()
    );
    assert!(fixture.hub.requests().resolver >= 2);
}
