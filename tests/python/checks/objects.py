"""Files: upload, overwrite, describe, download, delete."""

import os
import random
import warnings
from datetime import datetime, timedelta, timezone

from harness import Context, check, equal, refused
from huggingface_hub.errors import (
    BucketBatchError,
    EntryNotFoundError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
)
from huggingface_hub.utils import get_session

EMPTY_HASH = "0" * 64


@check
def upload_bytes_and_files(ctx: Context) -> None:
    bucket = ctx.bucket()
    local = ctx.dir / "local.json"
    local.write_bytes(b'{"from": "a file"}')
    ctx.api.batch_bucket_files(
        bucket,
        add=[(b"from memory", "m.txt"), (str(local), "as-str.json"), (local, "d/as-path")],
    )
    equal(
        ctx.get(bucket, ["m.txt", "as-str.json", "d/as-path"]),
        {
            "m.txt": b"from memory",
            "as-str.json": b'{"from": "a file"}',
            "d/as-path": b'{"from": "a file"}',
        },
    )


@check
def what_the_hub_knows_of_a_file(ctx: Context) -> None:
    bucket = ctx.bucket()
    local = ctx.dir / "page.html"
    local.write_bytes(b"<p>")
    written = datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=timezone.utc)
    os.utime(local, (written.timestamp(), written.timestamp()))
    ctx.api.batch_bucket_files(bucket, add=[(local, "page"), (b"..", "noext")])

    infos = ctx.infos(bucket, ["page", "noext"])
    page = infos["page"]
    equal((page.type, page.size, len(page.xet_hash)), ("file", 3, 64))
    # The client sends whole milliseconds of a float, so the last of them may be lost.
    assert abs(page.mtime - written) <= timedelta(milliseconds=1), page.mtime
    now = datetime.now(timezone.utc)
    for info in infos.values():
        assert abs(now - info.uploaded_at) < timedelta(minutes=1), info.uploaded_at
    assert abs(now - infos["noext"].mtime) < timedelta(minutes=1), infos["noext"].mtime

    # The client drops the content type, so ask past it.
    response = get_session().post(
        f"{ctx.endpoint}/api/buckets/{bucket}/paths-info",
        headers=ctx.api._build_hf_headers(),
        json={"paths": ["page", "noext"]},
    )
    types = {item["path"]: item.get("contentType") for item in response.json()}
    equal(types, {"page": "text/html", "noext": None})


@check
def overwrite(ctx: Context) -> None:
    bucket = ctx.bucket({"a": b"first"})
    first = ctx.infos(bucket, ["a"])["a"]
    ctx.put(bucket, {"a": b"the second"})
    second = ctx.infos(bucket, ["a"])["a"]
    equal((first.size, second.size), (5, 10))
    assert first.xet_hash != second.xet_hash
    assert second.uploaded_at >= first.uploaded_at
    equal(ctx.get(bucket, ["a"]), {"a": b"the second"})
    ctx.put(bucket, {"a": b"first"})
    equal(ctx.infos(bucket, ["a"])["a"].xet_hash, first.xet_hash, "hash of the same content")


@check
def empty_file(ctx: Context) -> None:
    bucket = ctx.bucket({"empty": b"", "full": b"x"})
    info = ctx.infos(bucket, ["empty"])["empty"]
    equal((info.size, info.xet_hash), (0, EMPTY_HASH))
    equal(ctx.get(bucket, ["empty", "full"]), {"empty": b"", "full": b"x"})
    metadata = ctx.api.get_bucket_file_metadata(bucket, "empty")
    equal((metadata.size, metadata.xet_file_data.file_hash), (0, EMPTY_HASH))
    ctx.put(bucket, {"full": b"", "empty": b"no longer"})
    equal(ctx.get(bucket, ["empty", "full"]), {"empty": b"no longer", "full": b""})


@check
def several_xorbs(ctx: Context) -> None:
    """More than 64 MiB that do not compress do not fit into one xorb."""
    data = random.Random(7).randbytes(70 * 1024 * 1024 + 1)
    bucket = ctx.bucket({"large": data})
    equal(ctx.infos(bucket, ["large"])["large"].size, len(data))
    assert ctx.get(bucket, ["large"])["large"] == data, "other bytes came back"


@check
def deduplicated_content(ctx: Context) -> None:
    data = random.Random(8).randbytes(3 * 1024 * 1024)
    changed = data[:1_500_000] + b"inserted" + data[1_500_000:]
    bucket = ctx.bucket({"a": data, "same": data})
    ctx.put(bucket, {"changed": changed})
    infos = ctx.infos(bucket, ["a", "same"])
    equal(infos["a"].xet_hash, infos["same"].xet_hash)
    got = ctx.get(bucket, ["a", "same", "changed"])
    assert got == {"a": data, "same": data, "changed": changed}, "other bytes came back"


@check
def add_and_delete_in_one_batch(ctx: Context) -> None:
    bucket = ctx.bucket({"old": b"1", "stays": b"2"})
    ctx.api.batch_bucket_files(bucket, add=[(b"3", "new")], delete=["old"])
    equal(ctx.paths(bucket), ["new", "stays"])


@check
def more_files_than_a_batch_or_a_page_holds(ctx: Context) -> None:
    bucket = ctx.bucket()
    files = {f"many/{i:04}": str(i).encode() for i in range(1100)}
    ctx.put(bucket, files)
    equal(ctx.paths(bucket), sorted(files))
    infos = ctx.infos(bucket, [*files, "many/missing"])
    equal({path: info.size for path, info in infos.items()}, {p: len(d) for p, d in files.items()})
    equal(ctx.get(bucket, list(files)[::100]), {p: files[p] for p in list(files)[::100]})
    ctx.api.batch_bucket_files(bucket, delete=list(files))
    equal(ctx.paths(bucket), [])


@check
def paths_info_of_what_is_not_a_file(ctx: Context) -> None:
    bucket = ctx.bucket({"d/a": b"1"})
    equal(list(ctx.infos(bucket, ["d/a", "d", "d/", "missing", ""])), ["d/a"])
    equal(ctx.infos(bucket, []), {})


@check
def metadata(ctx: Context) -> None:
    bucket = ctx.bucket({"d/a": b"12345"})
    found = ctx.api.get_bucket_file_metadata(bucket, "d/a")
    equal(found.size, 5)
    equal(found.xet_file_data.file_hash, ctx.infos(bucket, ["d/a"])["d/a"].xet_hash)
    equal(found.xet_file_data.refresh_route, f"{ctx.endpoint}/api/buckets/{bucket}/xet-read-token")
    with refused(RemoteEntryNotFoundError, 404):
        ctx.api.get_bucket_file_metadata(bucket, "missing")
    with refused(RemoteEntryNotFoundError, 404):
        ctx.api.get_bucket_file_metadata(bucket, "d")


@check
def download_what_is_missing(ctx: Context) -> None:
    bucket = ctx.bucket({"a": b"1"})
    with refused(EntryNotFoundError):
        ctx.get(bucket, ["a", "missing"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ctx.api.download_bucket_files(
            bucket, [("missing", ctx.dir / "no"), ("a", ctx.dir / "yes")]
        )
    equal((ctx.dir / "yes").read_bytes(), b"1")
    assert not (ctx.dir / "no").exists()
    assert any("missing" in str(warning.message) for warning in caught), caught


@check
def download_listed_files(ctx: Context) -> None:
    files = {"a": b"", "d/b": b"22", "d/e/c": b"333"}
    bucket = ctx.bucket(files)
    pairs = [(item, ctx.dir / item.path) for item in ctx.api.list_bucket_tree(bucket)]
    ctx.api.download_bucket_files(bucket, pairs)
    equal({path: (ctx.dir / path).read_bytes() for path in files}, files)


@check
def delete(ctx: Context) -> None:
    bucket = ctx.bucket({"a": b"1", "ab": b"2", "a/b": b"3"})
    ctx.api.batch_bucket_files(bucket, delete=["a"])
    equal(ctx.paths(bucket), ["a/b", "ab"])
    with refused(EntryNotFoundError):
        ctx.get(bucket, ["a"])
    # Content that another name holds is still there, and so is content written again.
    ctx.put(bucket, {"a": b"1"})
    equal(ctx.get(bucket, ["a", "ab", "a/b"]), {"a": b"1", "ab": b"2", "a/b": b"3"})


@check
def invalid_keys(ctx: Context) -> None:
    bucket = ctx.bucket()
    for key in ["", "/a", "a/", "a//b", "../a", "a/../b", "a\\b"]:
        with refused(BucketBatchError, 422):
            ctx.put(bucket, {key: b"1"})
    equal(ctx.paths(bucket), [])


@check
def a_batch_that_fails_in_part(ctx: Context) -> None:
    bucket = ctx.bucket()
    try:
        ctx.put(bucket, {"good": b"1", "a//b": b"2", "fine": b"3"})
    except BucketBatchError as error:
        equal([failure["path"] for failure in error.failures], ["a//b"])
        equal(error.response.status_code, 200)
    else:
        raise AssertionError("the invalid path was accepted")
    equal(ctx.paths(bucket), ["fine", "good"])


@check
def content_that_was_never_uploaded(ctx: Context) -> None:
    bucket = ctx.bucket({"a": b"1"})
    with refused(BucketBatchError, 422):
        ctx.api.batch_bucket_files(bucket, copy=[("bucket", bucket, "ab" * 32, "ghost")])
    equal(ctx.paths(bucket), ["a"])


@check
def ranges_over_http(ctx: Context) -> None:
    """What clients without Xet do: follow the redirect, with a range."""
    data = random.Random(9).randbytes(200_000)
    bucket = ctx.bucket({"d/a b": data})
    url = f"{ctx.endpoint}/buckets/{bucket}/resolve/d/a%20b"

    def get(byte_range: str | None):
        headers = ctx.api._build_hf_headers()
        if byte_range:
            headers["Range"] = f"bytes={byte_range}"
        return get_session().get(url, headers=headers)

    whole = get(None)
    equal((whole.status_code, whole.content == data), (200, True))
    for asked, want in [("0-9", data[:10]), ("199990-", data[-10:]), ("-5", data[-5:])]:
        part = get(asked)
        equal((part.status_code, part.content), (206, want), asked)
    clamped = get("199990-999999")
    equal((clamped.status_code, clamped.content), (206, data[-10:]))
    equal(clamped.headers["Content-Range"], "bytes 199990-199999/200000")
    equal(get("200000-").status_code, 416)


@check
def unknown_routes(ctx: Context) -> None:
    """A client that asks for more than buckets must get an error that it understands."""
    with refused(HfHubHTTPError, 404):
        ctx.api.get_collection(f"{ctx.user}/none")
