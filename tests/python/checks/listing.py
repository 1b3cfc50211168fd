"""The tree: flat and by level, with and without a prefix, page by page."""

from harness import Context, check, equal
from huggingface_hub import BucketFile, BucketFolder
from huggingface_hub.utils._pagination import paginate

FILES = {
    path: path.encode()
    for path in ["a.txt", "d/1", "d/2", "d/sub/3", "d.txt", "dd/4", "z/y/x/5"]
}


def kinds(listing) -> list[tuple[str, str]]:
    items = list(listing)
    for item in items:
        assert isinstance(item, BucketFile if item.type == "file" else BucketFolder), item
    return [(item.type, item.path) for item in items]


@check
def flat(ctx: Context) -> None:
    bucket = ctx.bucket(FILES)
    files = list(ctx.api.list_bucket_tree(bucket, recursive=True))
    equal(kinds(files), [("file", path) for path in sorted(FILES)])
    equal({f.path: f.size for f in files}, {path: len(data) for path, data in FILES.items()})
    equal(kinds(ctx.api.list_bucket_tree(bucket)), kinds(files), "recursive when not asked")


@check
def one_level(ctx: Context) -> None:
    bucket = ctx.bucket(FILES)

    def level(prefix):
        return sorted(kinds(ctx.api.list_bucket_tree(bucket, prefix, recursive=False)))

    directory, file = "directory", "file"
    equal(
        level(None),
        [(directory, "d"), (directory, "dd"), (directory, "z"), (file, "a.txt"), (file, "d.txt")],
    )
    below_d = [(directory, "d/sub"), (file, "d/1"), (file, "d/2")]
    equal(level("d/"), below_d)
    equal(level("d"), below_d, "a prefix that names a directory")
    equal(level("d/sub"), [(file, "d/sub/3")])
    equal(level("z"), [(directory, "z/y")])
    equal(level("z/y/x/5"), [(file, "z/y/x/5")])
    equal(level("missing"), [])


@check
def prefixes_match_characters(ctx: Context) -> None:
    bucket = ctx.bucket(FILES)
    equal(ctx.paths(bucket, "d"), ["d.txt", "d/1", "d/2", "d/sub/3", "dd/4"])
    equal(ctx.paths(bucket, "d/"), ["d/1", "d/2", "d/sub/3"])
    equal(ctx.paths(bucket, "d/s"), ["d/sub/3"])
    equal(ctx.paths(bucket, "a.txt"), ["a.txt"])
    equal(ctx.paths(bucket, "missing"), [])


@check
def directories_have_dates(ctx: Context) -> None:
    bucket = ctx.bucket(FILES)
    items = ctx.api.list_bucket_tree(bucket, recursive=False)
    folders = [item for item in items if isinstance(item, BucketFolder)]
    equal(len(folders), 3)
    assert all(folder.uploaded_at is not None for folder in folders), folders


@check
def an_empty_bucket(ctx: Context) -> None:
    bucket = ctx.bucket()
    equal(ctx.paths(bucket), [])
    equal(list(ctx.api.list_bucket_tree(bucket, recursive=False)), [])


@check
def pages(ctx: Context) -> None:
    bucket = ctx.bucket(FILES)
    url, headers = f"{ctx.endpoint}/api/buckets/{bucket}/tree", ctx.api._build_hf_headers()
    for limit in (1, 2, 3, 1000):
        flat_items = paginate(url, params={"limit": limit}, headers=headers)
        equal([item["path"] for item in flat_items], sorted(FILES), f"{limit} a page")
        level = paginate(url, params={"limit": limit, "recursive": "false"}, headers=headers)
        equal(
            sorted(item["path"] for item in level),
            ["a.txt", "d", "d.txt", "dd", "z"],
            f"one level, {limit} a page",
        )
        below = paginate(f"{url}/d%2F", params={"limit": limit}, headers=headers)
        equal([item["path"] for item in below], ["d/1", "d/2", "d/sub/3"])
