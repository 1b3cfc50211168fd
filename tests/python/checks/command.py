"""The `hf buckets` command, in a process of its own."""

import json
import subprocess
import sys

from harness import Context, check, equal

# What the `hf` script of the package does, wherever it is installed.
HF = [sys.executable, "-c", "from huggingface_hub.cli.hf import main; main()"]


def hf(ctx: Context, *arguments: str, stdin: bytes = b"", fails: bool = False) -> str:
    done = subprocess.run([*HF, *arguments], input=stdin, capture_output=True, cwd=ctx.dir)
    output = done.stdout.decode()
    assert (done.returncode != 0) == fails, (
        f"hf {' '.join(arguments)} ended with {done.returncode}\n{output}{done.stderr.decode()}"
    )
    return output + done.stderr.decode() if fails else output


@check
def files(ctx: Context) -> None:
    bucket = ctx.new_name()
    hf(ctx, "buckets", "create", bucket, "--private")
    equal(ctx.api.bucket_info(bucket).private, True)
    (ctx.dir / "a b.txt").write_bytes(b"local")
    hf(ctx, "buckets", "cp", "a b.txt", f"hf://buckets/{bucket}/d/a b.txt")
    hf(ctx, "buckets", "cp", "-", f"hf://buckets/{bucket}/piped", stdin=b"from stdin")
    hf(ctx, "buckets", "cp", f"hf://buckets/{bucket}/piped", f"hf://buckets/{bucket}/copy")
    hf(ctx, "buckets", "cp", f"hf://buckets/{bucket}/d/a b.txt", "back")
    equal((ctx.dir / "back").read_bytes(), b"local")
    equal(ctx.get(bucket, ["copy", "piped"]), {"copy": b"from stdin", "piped": b"from stdin"})

    listed = json.loads(hf(ctx, "buckets", "list", bucket, "-R", "--format", "json"))
    equal(sorted(item["path"] for item in listed), ["copy", "d/a b.txt", "piped"])
    hf(ctx, "buckets", "rm", f"{bucket}/copy", "--yes")
    hf(ctx, "buckets", "rm", f"{bucket}/d", "--recursive", "--yes")
    equal(ctx.paths(bucket), ["piped"])


@check
def sync(ctx: Context) -> None:
    bucket = ctx.bucket()
    (ctx.dir / "up").mkdir()
    (ctx.dir / "up/a").write_bytes(b"1")
    hf(ctx, "buckets", "sync", "up", f"hf://buckets/{bucket}/p")
    hf(ctx, "buckets", "sync", f"hf://buckets/{bucket}/p", "down")
    equal((ctx.dir / "down/a").read_bytes(), b"1")


@check
def buckets(ctx: Context) -> None:
    old, new = ctx.bucket({"a": b"123"}), ctx.new_name()
    hf(ctx, "buckets", "settings", old, "--private")
    hf(ctx, "buckets", "move", old, new)
    info = json.loads(hf(ctx, "buckets", "info", new, "--format", "json"))
    equal((info["id"], info["private"], info["size"]), (new, True, 3))
    assert new in hf(ctx, "buckets", "list"), "the bucket is not listed"
    hf(ctx, "buckets", "delete", new, "--yes")
    output = hf(ctx, "buckets", "info", new, fails=True)
    assert "not found" in output.lower(), output
