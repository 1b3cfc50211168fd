"""Buckets themselves: create, describe, list, settings, move, delete."""

from datetime import datetime, timedelta, timezone

from harness import Context, check, equal, refused
from huggingface_hub.errors import BucketNotFoundError, HfHubHTTPError


@check
def whoami(ctx: Context) -> None:
    me = ctx.api.whoami()
    equal(me["name"], ctx.user)
    equal(me["type"], "user")
    assert isinstance(me["orgs"], list), me


@check
def create_and_describe(ctx: Context) -> None:
    bucket = ctx.new_name()
    url = ctx.api.create_bucket(bucket)
    equal(url.bucket_id, bucket)
    equal(url.namespace, ctx.user)
    equal(url.url, f"{ctx.endpoint}/buckets/{bucket}")
    equal(url.uri.to_uri(), f"hf://buckets/{bucket}")

    info = ctx.api.bucket_info(bucket)
    equal((info.id, info.private, info.size, info.total_files), (bucket, False, 0, 0))
    age = datetime.now(timezone.utc) - info.created_at
    assert timedelta(seconds=-2) < age < timedelta(minutes=1), age


@check
def a_bare_name_is_in_the_users_namespace(ctx: Context) -> None:
    bucket = ctx.new_name()
    url = ctx.api.create_bucket(bucket.split("/")[1])
    equal(url.bucket_id, bucket)
    equal(ctx.api.bucket_info(bucket).id, bucket)


@check
def create_private(ctx: Context) -> None:
    equal(ctx.api.bucket_info(ctx.bucket(private=True)).private, True)
    equal(ctx.api.bucket_info(ctx.bucket(visibility="private")).private, True)
    equal(ctx.api.bucket_info(ctx.bucket(private=False)).private, False)
    equal(ctx.api.bucket_info(ctx.bucket(region="eu")).private, False)


@check
def create_twice(ctx: Context) -> None:
    bucket = ctx.bucket({"kept.txt": b"kept"}, private=True)
    with refused(HfHubHTTPError, 409):
        ctx.api.create_bucket(bucket)
    url = ctx.api.create_bucket(bucket, exist_ok=True)
    equal(url.bucket_id, bucket)
    # Neither the content nor the settings are touched.
    equal(ctx.paths(bucket), ["kept.txt"])
    equal(ctx.api.bucket_info(bucket).private, True)


@check
def list_buckets(ctx: Context) -> None:
    open_one, private = ctx.bucket(), ctx.bucket(private=True)
    ids = [info.id for info in ctx.api.list_buckets()]
    assert open_one in ids and private in ids, ids
    equal([info.id for info in ctx.api.list_buckets(namespace=ctx.user)], ids)

    name = open_one.split("/")[1]
    found = [info.id for info in ctx.api.list_buckets(search=name)]
    assert open_one in found and all(name in bucket for bucket in found), found
    equal(list(ctx.api.list_buckets(search="no-such-bucket-anywhere")), [])

    seen = [info.id for info in ctx.other.list_buckets(namespace=ctx.user)]
    assert open_one in seen and private not in seen, seen


@check
def list_buckets_over_several_pages(ctx: Context) -> None:
    made = {ctx.bucket() for _ in range(120)}
    listed = [info.id for info in ctx.api.list_buckets()]
    equal(len(listed), len(set(listed)), "a bucket is listed twice")
    equal(made - set(listed), set(), "buckets missing from the list")
    for bucket in made:
        ctx.api.delete_bucket(bucket)


@check
def size_and_count_follow_the_content(ctx: Context) -> None:
    bucket = ctx.bucket({"a": b"12345", "d/b": b"123"})

    def totals():
        info = ctx.api.bucket_info(bucket)
        return info.size, info.total_files

    equal(totals(), (8, 2))
    ctx.put(bucket, {"a": b"1"})
    equal(totals(), (4, 2), "after an overwrite")
    ctx.api.batch_bucket_files(bucket, delete=["d/b"])
    equal(totals(), (1, 1), "after a delete")


@check
def updated_at_moves_with_every_change(ctx: Context) -> None:
    bucket = ctx.bucket()
    seen = [ctx.api.bucket_info(bucket).updatedAt]
    source = {"a": b"1"}
    ctx.put(bucket, source)
    seen.append(ctx.api.bucket_info(bucket).updatedAt)
    ctx.api.copy_files(f"hf://buckets/{bucket}/a", f"hf://buckets/{bucket}/b")
    seen.append(ctx.api.bucket_info(bucket).updatedAt)
    ctx.api.batch_bucket_files(bucket, delete=["a"])
    seen.append(ctx.api.bucket_info(bucket).updatedAt)
    ctx.api.update_bucket_settings(bucket, private=True)
    seen.append(ctx.api.bucket_info(bucket).updatedAt)
    equal(seen, sorted(set(seen)), "updatedAt does not grow")
    equal(ctx.api.bucket_info(bucket).updatedAt, seen[-1], "updatedAt moved without a change")


@check
def settings(ctx: Context) -> None:
    bucket = ctx.bucket({"a": b"1"})
    ctx.api.update_bucket_settings(bucket, private=True)
    equal(ctx.api.bucket_info(bucket).private, True)
    with refused(HfHubHTTPError, 401):
        ctx.anonymous.bucket_info(bucket)
    ctx.api.update_bucket_settings(bucket, private=False)
    equal(ctx.anonymous.bucket_info(bucket).private, False)


@check
def move(ctx: Context) -> None:
    old, new = ctx.bucket({"d/a": b"1", "b": b"2"}, private=True), ctx.new_name()
    before = ctx.api.bucket_info(old)
    hashes = {path: info.xet_hash for path, info in ctx.infos(old, ["d/a", "b"]).items()}
    ctx.api.move_bucket(old, new)

    after = ctx.api.bucket_info(new)
    equal(
        (after.id, after.private, after.size, after.total_files, after.created_at),
        (new, True, 2, 2, before.created_at),
    )
    equal(ctx.paths(new), ["b", "d/a"])
    equal({p: i.xet_hash for p, i in ctx.infos(new, ["d/a", "b"]).items()}, hashes)
    equal(ctx.get(new, ["d/a", "b"]), {"d/a": b"1", "b": b"2"})
    assert old not in [info.id for info in ctx.api.list_buckets()]


@check
def move_refused(ctx: Context) -> None:
    bucket, taken = ctx.bucket({"a": b"1"}), ctx.bucket({"b": b"2"})
    with refused(HfHubHTTPError, 409):
        ctx.api.move_bucket(bucket, taken)
    equal((ctx.paths(bucket), ctx.paths(taken)), (["a"], ["b"]))
    with refused(ValueError):
        ctx.api.move_bucket(bucket, "no-namespace")


@check
def delete(ctx: Context) -> None:
    bucket = ctx.bucket({"a": b"1"})
    ctx.api.delete_bucket(bucket)
    for again in (ctx.api.bucket_info, ctx.api.delete_bucket):
        with refused(BucketNotFoundError, 404):
            again(bucket)
    ctx.api.delete_bucket(bucket, missing_ok=True)
    # The name is free again, and empty.
    ctx.api.create_bucket(bucket)
    equal(ctx.paths(bucket), [])
