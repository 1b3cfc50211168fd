"""Copies on the server, which move no bytes."""

from harness import Context, check, equal, refused
from huggingface_hub.errors import BucketBatchError, BucketNotFoundError, EntryNotFoundError

TREE = {"src/a": b"1", "src/sub/b": b"2", "src.txt": b"3", "srcs/c": b"4"}


def uri(bucket: str, path: str = "") -> str:
    return f"hf://buckets/{bucket}/{path}"


@check
def a_file(ctx: Context) -> None:
    bucket = ctx.bucket({"a": b"content", "d/x": b"x"})
    before = ctx.infos(bucket, ["a"])["a"]
    ctx.api.copy_files(uri(bucket, "a"), uri(bucket, "b"))
    ctx.api.copy_files(uri(bucket, "a"), uri(bucket, "d/"))
    ctx.api.copy_files(uri(bucket, "a"), uri(bucket, "new/"))
    equal(ctx.paths(bucket), ["a", "b", "d/a", "d/x", "new/a"])
    for path, info in ctx.infos(bucket, ["b", "d/a", "new/a"]).items():
        equal((info.size, info.xet_hash), (before.size, before.xet_hash), path)
    # A copy is a file of its own.
    ctx.put(bucket, {"b": b"changed"})
    ctx.api.batch_bucket_files(bucket, delete=["a"])
    equal(
        ctx.get(bucket, ["b", "d/a", "new/a"]),
        {"b": b"changed", "d/a": b"content", "new/a": b"content"},
    )


@check
def over_an_existing_file(ctx: Context) -> None:
    bucket = ctx.bucket({"a": b"new", "b": b"old content"})
    ctx.api.copy_files(uri(bucket, "a"), uri(bucket, "b"))
    equal(ctx.get(bucket, ["a", "b"]), {"a": b"new", "b": b"new"})
    equal(ctx.api.bucket_info(bucket).size, 6)


@check
def onto_itself(ctx: Context) -> None:
    bucket = ctx.bucket({"a": b"1"})
    ctx.api.copy_files(uri(bucket, "a"), uri(bucket, "a"))
    equal(ctx.get(bucket, ["a"]), {"a": b"1"})


@check
def an_empty_file(ctx: Context) -> None:
    bucket = ctx.bucket({"empty": b""})
    ctx.api.copy_files(uri(bucket, "empty"), uri(bucket, "copy"))
    equal(ctx.get(bucket, ["copy"]), {"copy": b""})


@check
def a_directory(ctx: Context) -> None:
    bucket = ctx.bucket(TREE)
    ctx.api.copy_files(uri(bucket, "src"), uri(bucket, "to"))
    equal(ctx.paths(bucket, "to/"), ["to/a", "to/sub/b"], "to what is not there: renamed")
    ctx.api.copy_files(uri(bucket, "src"), uri(bucket, "to"))
    equal(
        ctx.paths(bucket, "to/"),
        ["to/a", "to/src/a", "to/src/sub/b", "to/sub/b"],
        "to a directory: nested",
    )
    ctx.api.copy_files(uri(bucket, "src/"), uri(bucket, "merged/"))
    equal(ctx.paths(bucket, "merged/"), ["merged/a", "merged/sub/b"], "with a slash: merged")


@check
def to_another_bucket(ctx: Context) -> None:
    source, target = ctx.bucket(TREE, private=True), ctx.bucket()
    ctx.api.copy_files(uri(source, "src/a"), uri(target, "a"))
    ctx.api.copy_files(uri(source, "src/"), uri(target, "d/"))
    equal(ctx.paths(target), ["a", "d/a", "d/sub/b"])
    ctx.api.delete_bucket(source)
    equal(ctx.get(target, ["a", "d/sub/b"]), {"a": b"1", "d/sub/b": b"2"})


@check
def a_whole_bucket(ctx: Context) -> None:
    source, target = ctx.bucket(TREE), ctx.bucket()
    ctx.api.copy_files(f"hf://buckets/{source}", f"hf://buckets/{target}")
    equal(ctx.paths(target), sorted(TREE))
    equal(ctx.get(target, list(TREE)), TREE)


@check
def what_is_missing(ctx: Context) -> None:
    bucket, missing = ctx.bucket({"a": b"1"}), ctx.new_name()
    with refused(EntryNotFoundError):
        ctx.api.copy_files(uri(bucket, "none"), uri(bucket, "b"))
    with refused(BucketNotFoundError, 404):
        ctx.api.copy_files(uri(missing, "a"), uri(bucket, "b"))
    with refused(BucketNotFoundError, 404):
        ctx.api.copy_files(uri(bucket, "a"), uri(missing, "b"))
    equal(ctx.paths(bucket), ["a"])


@check
def from_a_bucket_that_one_may_not_read(ctx: Context) -> None:
    secret = ctx.bucket({"a": b"1"}, private=True)
    content = ctx.infos(secret, ["a"])["a"].xet_hash
    name = ctx.new_name().split("/")[1]
    theirs = ctx.other.create_bucket(name).bucket_id
    with refused(BucketBatchError, 422):
        ctx.other.batch_bucket_files(theirs, copy=[("bucket", secret, content, "stolen")])
    equal(list(ctx.other.list_bucket_tree(theirs)), [])
    ctx.other.delete_bucket(theirs)
