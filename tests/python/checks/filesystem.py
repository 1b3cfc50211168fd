"""HfFileSystem, the way pandas, Dask and DuckDB reach a bucket."""

import random

import fsspec

from harness import Context, check, equal, refused
from huggingface_hub.errors import BucketNotFoundError

TREE = {"a.txt": b"1", "d/b.txt": b"22", "d/c.bin": b"333", "d/e/f.txt": b"4444", "dd/g": b"5"}


def root_of(bucket: str) -> str:
    return f"buckets/{bucket}"


def relative(root: str, names: list[str]) -> list[str]:
    return sorted(name.removeprefix(f"{root}/") for name in names)


@check
def write_and_read(ctx: Context) -> None:
    root, fs = root_of(ctx.bucket()), ctx.filesystem()
    with fs.open(f"hf://{root}/d/new.txt", "w", encoding="utf-8") as file:
        file.write("zwölf\n")
        file.write("Boxkämpfer\n")
    with fs.open(f"{root}/d/new.txt", "r", encoding="utf-8") as file:
        equal(file.readlines(), ["zwölf\n", "Boxkämpfer\n"])
    with fs.open(f"{root}/empty", "wb"):
        pass
    equal((fs.info(f"{root}/empty")["size"], fs.cat_file(f"{root}/empty")), (0, b""))
    fs.pipe_file(f"{root}/piped", b"\0\1\2")
    equal(fs.cat_file(f"{root}/piped"), b"\0\1\2")
    equal(fs.cat_file(f"{root}/piped", start=1, end=2), b"\1")


@check
def read_in_pieces(ctx: Context) -> None:
    data = random.Random(3).randbytes(1_000_000)
    root, fs = root_of(ctx.bucket({"data": data})), ctx.filesystem()
    with fs.open(f"{root}/data", "rb", block_size=64 * 1024) as file:
        equal(file.read(10), data[:10])
        file.seek(500_000)
        equal(file.read(100_000) == data[500_000:600_000], True)
        file.seek(-7, 2)
        equal(file.read(), data[-7:])
        equal(file.read(1), b"")
    with fs.open(f"{root}/data", "rb", block_size=0) as file:
        equal(file.read(10), data[:10])
        equal(file.read() == data[10:], True)


@check
def ls_and_info(ctx: Context) -> None:
    bucket = ctx.bucket(TREE)
    root, fs = root_of(bucket), ctx.filesystem()
    equal(relative(root, fs.ls(root, detail=False)), ["a.txt", "d", "dd"])
    entries = {entry["name"].removeprefix(f"{root}/"): entry for entry in fs.ls(f"{root}/d")}
    equal({name: entry["type"] for name, entry in entries.items()},
          {"d/b.txt": "file", "d/c.bin": "file", "d/e": "directory"})
    equal({name: entry["size"] for name, entry in entries.items()},
          {"d/b.txt": 2, "d/c.bin": 3, "d/e": 0})
    info = fs.info(f"{root}/d/c.bin")
    equal((info["type"], info["size"]), ("file", 3))
    equal(info["xet_hash"], ctx.infos(bucket, ["d/c.bin"])["d/c.bin"].xet_hash)
    equal((fs.isfile(f"{root}/a.txt"), fs.isdir(f"{root}/a.txt")), (True, False))
    equal((fs.isfile(f"{root}/d"), fs.isdir(f"{root}/d")), (False, True))
    equal([fs.exists(f"{root}/{path}") for path in ("a.txt", "d", "d/e", "no", "d/no")],
          [True, True, True, False, False])
    equal(fs.ls(root_of(ctx.bucket())), [])


@check
def glob_find_walk_du(ctx: Context) -> None:
    root, fs = root_of(ctx.bucket(TREE)), ctx.filesystem()
    equal(relative(root, fs.glob(f"{root}/*.txt")), ["a.txt"])
    equal(relative(root, fs.glob(f"{root}/**/*.txt")), ["a.txt", "d/b.txt", "d/e/f.txt"])
    equal(relative(root, fs.glob(f"{root}/d*/?")), ["d/e", "dd/g"])
    equal(relative(root, fs.find(root)), sorted(TREE))
    equal(relative(root, fs.find(f"{root}/d")), ["d/b.txt", "d/c.bin", "d/e/f.txt"])
    equal(fs.du(root), sum(map(len, TREE.values())))
    walked = {path.removeprefix(root).lstrip("/"): (sorted(dirs), sorted(files))
              for path, dirs, files in fs.walk(root)}
    equal(walked, {"": (["d", "dd"], ["a.txt"]), "d": (["e"], ["b.txt", "c.bin"]),
                   "d/e": ([], ["f.txt"]), "dd": ([], ["g"])})


@check
def copy(ctx: Context) -> None:
    bucket, other = ctx.bucket(TREE), ctx.bucket()
    root, fs = root_of(bucket), ctx.filesystem()
    fs.cp_file(f"{root}/a.txt", f"{root}/copy.txt")
    fs.cp(f"{root}/d/b.txt", f"{root_of(other)}/b.txt")
    fs.cp(f"{root}/d", f"{root}/tree", recursive=True)
    equal(ctx.paths(bucket, "tree/"), ["tree/b.txt", "tree/c.bin", "tree/e/f.txt"])
    equal(ctx.get(bucket, ["copy.txt", "tree/e/f.txt"]),
          {"copy.txt": b"1", "tree/e/f.txt": b"4444"})
    equal(ctx.get(other, ["b.txt"]), {"b.txt": b"22"})


@check
def move(ctx: Context) -> None:
    bucket = ctx.bucket(TREE)
    root, fs = root_of(bucket), ctx.filesystem()
    fs.mv(f"{root}/a.txt", f"{root}/moved.txt")
    fs.mv(f"{root}/d", f"{root}/m", recursive=True)
    equal(ctx.paths(bucket), ["dd/g", "m/b.txt", "m/c.bin", "m/e/f.txt", "moved.txt"])
    equal(ctx.get(bucket, ["moved.txt", "m/e/f.txt"]), {"moved.txt": b"1", "m/e/f.txt": b"4444"})


@check
def remove(ctx: Context) -> None:
    bucket = ctx.bucket(TREE)
    root, fs = root_of(bucket), ctx.filesystem()
    fs.rm_file(f"{root}/a.txt")
    fs.rm(f"{root}/d/b.txt")
    equal(ctx.paths(bucket), ["d/c.bin", "d/e/f.txt", "dd/g"])
    fs.rm(f"{root}/d", recursive=True)
    equal(ctx.paths(bucket), ["dd/g"], "the lookalike stays")
    equal(relative(root, fs.ls(root, detail=False)), ["dd"], "the listing is fresh")


@check
def get_and_put(ctx: Context) -> None:
    bucket = ctx.bucket(TREE)
    root, fs = root_of(bucket), ctx.filesystem()
    fs.get_file(f"{root}/d/c.bin", str(ctx.dir / "c"))
    equal((ctx.dir / "c").read_bytes(), b"333")
    fs.get(f"{root}/d/", str(ctx.dir / "d"), recursive=True)
    equal((ctx.dir / "d/e/f.txt").read_bytes(), b"4444")
    fs.put(str(ctx.dir / "d"), f"{root}/put", recursive=True)
    equal(ctx.paths(bucket, "put/"), ["put/b.txt", "put/c.bin", "put/e/f.txt"])
    equal(ctx.get(bucket, ["put/c.bin"]), {"put/c.bin": b"333"})


@check
def by_url(ctx: Context) -> None:
    """As other libraries do it: nothing but a URL and the environment."""
    bucket = ctx.bucket({"100% #1 日本.txt": b"found"})
    with fsspec.open(f"hf://buckets/{bucket}/100% #1 日本.txt", "rb") as file:
        equal(file.read(), b"found")
    fs, _, paths = fsspec.get_fs_token_paths(f"hf://buckets/{bucket}/*.txt")
    equal([fs.cat_file(path) for path in paths], [b"found"])


@check
def follow_changes(ctx: Context) -> None:
    """Asked to follow events that a hub may not have, the client goes on without."""
    bucket = ctx.bucket({"a": b"1"})
    fs = ctx.filesystem(live_follow=True)
    equal(fs.ls(root_of(bucket), detail=False), [f"{root_of(bucket)}/a"])
    ctx.put(bucket, {"b": b"2"})
    fs.invalidate_cache()
    equal(relative(root_of(bucket), fs.ls(root_of(bucket), detail=False)), ["a", "b"])


@check
def what_is_missing(ctx: Context) -> None:
    root, fs = root_of(ctx.bucket({"a": b"1"})), ctx.filesystem()
    missing = root_of(ctx.new_name())
    for attempt in (
        lambda: fs.open(f"{root}/none", "rb"),
        lambda: fs.info(f"{root}/none"),
        lambda: fs.cat_file(f"{root}/none"),
        lambda: fs.cp_file(f"{root}/none", f"{root}/b"),
        lambda: fs.ls(missing),
        lambda: fs.open(f"{missing}/a", "rb"),
        lambda: fs.open(f"{missing}/a", "wb"),
    ):
        with refused(FileNotFoundError):
            attempt()
    equal(fs.exists(missing), False)
    with refused(BucketNotFoundError, 404):
        ctx.api.bucket_info(missing.removeprefix("buckets/"))
