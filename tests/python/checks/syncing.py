"""A folder and a bucket made equal, both ways."""

import contextlib
import io
import os
from pathlib import Path

from harness import Context, check, equal, refused
from huggingface_hub.errors import BucketNotFoundError

TREE = {"a.txt": b"1", "d/b.bin": b"22", "d/e/ü 🦀.txt": b"333", "empty": b""}
OLD = 1_600_000_000


def write(folder: Path, files: dict[str, bytes], mtime: int = OLD) -> Path:
    for path, data in files.items():
        local = folder / path
        local.parent.mkdir(parents=True, exist_ok=True)
        local.write_bytes(data)
        os.utime(local, (mtime, mtime))
    return folder


def read(folder: Path) -> dict[str, bytes]:
    return {
        local.relative_to(folder).as_posix(): local.read_bytes()
        for local in sorted(folder.rglob("*"))
        if local.is_file()
    }


def actions(plan) -> dict[str, str]:
    return {operation.path: operation.action for operation in plan.operations}


@check
def up(ctx: Context) -> None:
    bucket, folder = ctx.bucket(), write(ctx.dir / "up", TREE)
    target = f"hf://buckets/{bucket}"
    first = ctx.api.sync_bucket(str(folder), target, quiet=True)
    equal(actions(first), dict.fromkeys(TREE, "upload"))
    equal(ctx.get(bucket, list(TREE)), TREE)

    again = ctx.api.sync_bucket(str(folder), target, quiet=True)
    equal(actions(again), dict.fromkeys(TREE, "skip"), "nothing has changed")

    write(folder, {"a.txt": b"longer"})
    write(folder, {"d/b.bin": b"2!"}, OLD + 60)
    (folder / "empty").unlink()
    changed = ctx.api.sync_bucket(str(folder), target, quiet=True)
    equal(
        actions(changed), {"a.txt": "upload", "d/b.bin": "upload", "d/e/ü 🦀.txt": "skip"}
    )
    equal(ctx.get(bucket, ["a.txt", "d/b.bin", "empty"]),
          {"a.txt": b"longer", "d/b.bin": b"2!", "empty": b""})

    ctx.api.sync_bucket(str(folder), target, delete=True, quiet=True)
    equal(sorted(ctx.paths(bucket)), sorted(read(folder)))


@check
def down(ctx: Context) -> None:
    bucket, folder = ctx.bucket(TREE), ctx.dir / "down"
    source = f"hf://buckets/{bucket}"
    ctx.api.sync_bucket(source, str(folder), quiet=True)
    equal(read(folder), TREE)

    again = ctx.api.sync_bucket(source, str(folder), quiet=True)
    equal(actions(again), dict.fromkeys(TREE, "skip"), "nothing has changed")

    ctx.put(bucket, {"a.txt": b"longer"})
    ctx.api.batch_bucket_files(bucket, delete=["d/b.bin"])
    write(folder, {"mine": b"local"})
    changed = ctx.api.sync_bucket(source, str(folder), quiet=True)
    equal(actions(changed), {"a.txt": "download", "d/e/ü 🦀.txt": "skip", "empty": "skip"})
    equal(read(folder), {**TREE, "a.txt": b"longer", "mine": b"local"})

    ctx.api.sync_bucket(source, str(folder), delete=True, quiet=True)
    equal(sorted(read(folder)), sorted(ctx.paths(bucket)))


@check
def there_and_back_keeps_dates(ctx: Context) -> None:
    """What was uploaded with an old date is not seen as newer when it is synced back."""
    bucket, folder = ctx.bucket(), write(ctx.dir / "up", TREE)
    ctx.api.sync_bucket(str(folder), f"hf://buckets/{bucket}", quiet=True)
    for info in ctx.infos(bucket, list(TREE)).values():
        equal(info.mtime.timestamp(), OLD, info.path)
    back = ctx.api.sync_bucket(f"hf://buckets/{bucket}", str(folder), quiet=True)
    equal(actions(back), dict.fromkeys(TREE, "skip"))


@check
def a_prefix_and_its_lookalikes(ctx: Context) -> None:
    bucket = ctx.bucket({"sub/old": b"1", "submarine": b"2", "sub.txt": b"3"})
    folder = write(ctx.dir / "up", {"new": b"4"})
    target = f"hf://buckets/{bucket}/sub"
    ctx.api.sync_bucket(str(folder), target, delete=True, quiet=True)
    equal(ctx.paths(bucket), ["sub.txt", "sub/new", "submarine"])
    ctx.api.sync_bucket(target, str(ctx.dir / "down"), quiet=True)
    equal(read(ctx.dir / "down"), {"new": b"4"})


@check
def filters(ctx: Context) -> None:
    bucket, folder = ctx.bucket(), write(ctx.dir / "up", TREE)
    ctx.api.sync_bucket(
        str(folder), f"hf://buckets/{bucket}", include=["*.txt"], exclude=["d/*"], quiet=True
    )
    equal(ctx.paths(bucket), ["a.txt"])


@check
def plan_and_apply(ctx: Context) -> None:
    bucket, folder = ctx.bucket({"old": b"0"}), write(ctx.dir / "up", TREE)
    target, plan = f"hf://buckets/{bucket}", str(ctx.dir / "plan.jsonl")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        ctx.api.sync_bucket(str(folder), target, delete=True, dry_run=True)
    equal(len(printed.getvalue().splitlines()), 1 + len(TREE) + 1)
    ctx.api.sync_bucket(str(folder), target, delete=True, plan=plan, quiet=True)
    equal(ctx.paths(bucket), ["old"], "a plan changes nothing")
    ctx.api.sync_bucket(apply=plan, quiet=True)
    equal(ctx.get(bucket, sorted(TREE)), dict(sorted(TREE.items())))
    assert "old" not in ctx.paths(bucket)


@check
def a_missing_bucket(ctx: Context) -> None:
    with refused(BucketNotFoundError, 404):
        ctx.api.sync_bucket(f"hf://buckets/{ctx.new_name()}", str(ctx.dir / "down"), quiet=True)
