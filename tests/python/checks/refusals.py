"""Who may not do what, and which exception says so."""

from harness import Context, check, equal, refused
from huggingface_hub import HfApi
from huggingface_hub.errors import (
    BucketNotFoundError,
    HfHubHTTPError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import get_session


def writes(api: HfApi, bucket: str) -> list:
    """Every way to change a bucket without uploading bytes."""
    return [
        lambda: api.batch_bucket_files(bucket, delete=["a"]),
        lambda: api.update_bucket_settings(bucket, private=True),
        lambda: api.move_bucket(bucket, f"{bucket}-moved"),
        lambda: api.delete_bucket(bucket),
    ]


def reads(api: HfApi, bucket: str) -> list:
    return [
        lambda: api.bucket_info(bucket),
        lambda: list(api.list_bucket_tree(bucket)),
        lambda: list(api.get_bucket_paths_info(bucket, ["a"])),
    ]


def refuse_upload(ctx: Context, api: HfApi, bucket: str, status: int) -> None:
    """An upload fails at its write token, inside the Xet client, whose error is a plain one."""
    try:
        api.batch_bucket_files(bucket, add=[(b"never", "b")])
    except ConnectionError as error:
        assert f"({status} " in str(error), error
        assert ctx.token not in str(error), "the error shows a token"
    else:
        raise AssertionError("the upload was accepted")


@check
def a_missing_bucket(ctx: Context) -> None:
    missing = ctx.new_name()
    for attempt in reads(ctx.api, missing) + writes(ctx.api, missing):
        # The route of a move names no bucket, so the client does not know that it is about one.
        with refused_as_missing():
            attempt()
    refuse_upload(ctx, ctx.api, missing, 404)
    with refused(BucketNotFoundError, 404):
        ctx.api.download_bucket_files(missing, [("a", ctx.dir / "a")])
    # Neither does that of a download.
    with refused(RepositoryNotFoundError, 404):
        ctx.api.get_bucket_file_metadata(missing, "a")


class refused_as_missing:
    def __enter__(self) -> None:
        pass

    def __exit__(self, kind, error, _) -> bool:
        assert kind in (BucketNotFoundError, RepositoryNotFoundError), error
        equal(error.response.status_code, 404)
        moving = error.response.request.url.path == "/api/repos/move"
        equal(kind, RepositoryNotFoundError if moving else BucketNotFoundError)
        return True


@check
def no_token(ctx: Context) -> None:
    public, private = ctx.bucket({"a": b"1"}), ctx.bucket({"a": b"1"}, private=True)
    equal([item.path for item in ctx.anonymous.list_bucket_tree(public)], ["a"])
    equal([i.size for i in ctx.anonymous.get_bucket_paths_info(public, ["a"])], [1])
    equal(ctx.get(public, ["a"], ctx.anonymous), {"a": b"1"})
    for bucket in (private, ctx.new_name()):
        for attempt in reads(ctx.anonymous, bucket):
            with refused(HfHubHTTPError, 401):
                attempt()
        with refused(HfHubHTTPError, 401):
            ctx.anonymous.get_bucket_file_metadata(bucket, "a")
    for attempt in writes(ctx.anonymous, public):
        with refused(HfHubHTTPError, 401):
            attempt()
    refuse_upload(ctx, ctx.anonymous, public, 401)
    with refused(HfHubHTTPError, 401):
        ctx.anonymous.create_bucket(ctx.new_name())
    # The client does not even ask who it is without a token, so ask past it.
    equal(get_session().get(f"{ctx.endpoint}/api/whoami-v2").status_code, 401)
    equal(ctx.paths(public), ["a"])


@check
def an_unknown_token(ctx: Context) -> None:
    unknown = HfApi(endpoint=ctx.endpoint, token="hf_nobody_knows_this_one")
    public = ctx.bucket({"a": b"1"})
    for attempt in reads(unknown, public) + writes(unknown, public):
        with refused(HfHubHTTPError, 401):
            attempt()
    with refused(HfHubHTTPError, 401):
        unknown.whoami()
    with refused(HfHubHTTPError, 401):
        unknown.create_bucket(ctx.new_name())


@check
def a_read_only_token(ctx: Context) -> None:
    bucket = ctx.bucket({"a": b"1"}, private=True)
    equal(ctx.reader.whoami()["name"], ctx.user)
    equal(ctx.reader.bucket_info(bucket).private, True)
    equal(ctx.get(bucket, ["a"], ctx.reader), {"a": b"1"})
    for attempt in writes(ctx.reader, bucket):
        with refused(HfHubHTTPError, 403):
            attempt()
    refuse_upload(ctx, ctx.reader, bucket, 403)
    missing = ctx.new_name()
    with refused(HfHubHTTPError, 403):
        ctx.reader.create_bucket(missing)
    with refused(HfHubHTTPError, 403):
        ctx.reader.create_bucket(missing, exist_ok=True)
    # Refused to create, the client finds that the bucket is there.
    equal(ctx.reader.create_bucket(bucket, exist_ok=True).bucket_id, bucket)
    equal(ctx.paths(bucket), ["a"])


@check
def somebody_elses(ctx: Context) -> None:
    public, private = ctx.bucket({"a": b"1"}), ctx.bucket({"a": b"1"}, private=True)
    assert ctx.other.whoami()["name"] != ctx.user
    equal(ctx.get(public, ["a"], ctx.other), {"a": b"1"})
    for attempt in writes(ctx.other, public):
        with refused(HfHubHTTPError, 403):
            attempt()
    refuse_upload(ctx, ctx.other, public, 403)
    for attempt in reads(ctx.other, private) + writes(ctx.other, private):
        with refused_as_missing():
            attempt()
    with refused(HfHubHTTPError, 403):
        ctx.other.create_bucket(ctx.new_name())
    equal((ctx.paths(public), ctx.paths(private)), (["a"], ["a"]))


@check
def bad_bucket_names(ctx: Context) -> None:
    for name in ("with space", "sla%2Fsh", "ünï"):
        try:
            ctx.api.create_bucket(f"{ctx.user}/{name}")
        except HfHubHTTPError as error:
            assert 400 <= error.response.status_code < 500, error
        else:
            raise AssertionError(f"{name!r} was accepted")
