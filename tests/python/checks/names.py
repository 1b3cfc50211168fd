"""Paths that a URL, a shell or a careless client would garble."""

from harness import Context, check, equal
from huggingface_hub.utils import get_session

ODD = [
    "with space.txt",
    " leading and trailing ",
    "100%.txt",
    "%2F.txt",
    "already%20encoded",
    "a#fragment",
    "a?query=1",
    "a+b",
    "a&b=c",
    "semi;colon,comma",
    "quote\"s'and`",
    "[glob]*{x}",
    "at@sign:colon",
    "~tilde!$()",
    "日本語/ファイル.txt",
    "emoji/🦀🚀.bin",
    "e\u0301 decomposed",
    "é composed",
    "d/e/e/p/f",
    ".hidden/.file",
    "...",
    "UPPER/lower",
    "upper/LOWER",
]
# Each is the beginning of another.
PREFIXES = ["logs", "logs.json", "logs/a", "logs/a/b", "logs_old/a", "logs/ab"]


@check
def odd_names(ctx: Context) -> None:
    files = {path: path.encode() for path in ODD}
    bucket = ctx.bucket(files)
    equal(sorted(ctx.paths(bucket)), sorted(files))
    equal(sorted(ctx.infos(bucket, ODD)), sorted(files))
    equal(ctx.get(bucket, ODD), files)
    for path in ODD:
        equal(ctx.api.get_bucket_file_metadata(bucket, path).size, len(files[path]), path)
        equal(ctx.paths(bucket, path), [path], f"listing with the prefix {path!r}")
    ctx.api.batch_bucket_files(bucket, delete=ODD)
    equal(ctx.paths(bucket), [])


@check
def odd_names_over_http(ctx: Context) -> None:
    files = {path: path.encode() for path in ODD}
    bucket = ctx.bucket(files)
    fs = ctx.filesystem()
    for path, data in files.items():
        url = fs.url(f"buckets/{bucket}/{path}")
        response = get_session().get(url, headers=ctx.api._build_hf_headers())
        equal((response.status_code, response.content), (200, data), url)


@check
def a_name_that_is_the_beginning_of_others(ctx: Context) -> None:
    files = {path: path.encode() for path in PREFIXES}
    bucket = ctx.bucket(files)
    equal(ctx.paths(bucket), sorted(PREFIXES))
    equal(ctx.get(bucket, PREFIXES), files)
    ctx.api.batch_bucket_files(bucket, delete=["logs/a"])
    equal(ctx.paths(bucket), sorted(set(PREFIXES) - {"logs/a"}))


@check
def long_names(ctx: Context) -> None:
    files = {"/".join(["segment"] * 60) + "/file": b"deep", "n" * 255: b"long"}
    bucket = ctx.bucket(files)
    equal(sorted(ctx.paths(bucket)), sorted(files))
    equal(ctx.get(bucket, list(files)), files)
    for path, data in files.items():
        equal(ctx.api.get_bucket_file_metadata(bucket, path).size, len(data))
