"""A list of checks, what each of them is given, and how they are run and counted."""

import itertools
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import isolation
from huggingface_hub import HfApi, HfFileSystem
from huggingface_hub.errors import HfHubHTTPError

CHECKS: list[tuple[str, Callable[["Context"], None]]] = []


def check(function: Callable[["Context"], None]) -> Callable[["Context"], None]:
    """Adds a function to the checks that a run goes through, in the order of their definition."""
    CHECKS.append((f"{function.__module__.removeprefix('checks.')}.{function.__name__}", function))
    return function


class Skip(Exception):
    """The hub was given without a token that this check needs."""


class Context:
    """One check's view: clients, buckets of its own, a folder of its own."""

    _serial = itertools.count()
    _run = f"{os.getpid()}-{int(time.time())}"

    def __init__(self) -> None:
        self.endpoint = isolation.ENDPOINT
        self.token = isolation.TOKEN
        self.api = HfApi(endpoint=self.endpoint, token=self.token)
        self.anonymous = HfApi(endpoint=self.endpoint, token=False)
        self.user = self.api.whoami()["name"]
        self.dir = Path(tempfile.mkdtemp(dir=isolation.SCRATCH))

    @property
    def reader(self) -> HfApi:
        return self._api_of(isolation.READ_TOKEN, "HFBUCKET_TEST_READ_TOKEN")

    @property
    def other(self) -> HfApi:
        return self._api_of(isolation.OTHER_TOKEN, "HFBUCKET_TEST_OTHER_TOKEN")

    def _api_of(self, token: str, variable: str) -> HfApi:
        if not token:
            raise Skip(f"{variable} is not set")
        return HfApi(endpoint=self.endpoint, token=token)

    def filesystem(self, **options) -> HfFileSystem:
        """A file system that shares no listing with others."""
        return HfFileSystem(
            endpoint=self.endpoint, token=self.token, skip_instance_cache=True, **options
        )

    def new_name(self) -> str:
        """A bucket that does not exist."""
        return f"{self.user}/check-{self._run}-{next(self._serial)}"

    def bucket(self, files: dict[str, bytes] | None = None, **options) -> str:
        """Creates a bucket with these files."""
        bucket = self.new_name()
        self.api.create_bucket(bucket, **options)
        if files:
            self.put(bucket, files)
        return bucket

    def put(self, bucket: str, files: dict[str, bytes]) -> None:
        self.api.batch_bucket_files(bucket, add=[(data, path) for path, data in files.items()])

    def get(self, bucket: str, paths: list[str], api: HfApi | None = None) -> dict[str, bytes]:
        """Downloads files over Xet, and fails if one is missing."""
        folder = Path(tempfile.mkdtemp(dir=self.dir))
        pairs = [(path, folder / str(i)) for i, path in enumerate(paths)]
        (api or self.api).download_bucket_files(bucket, pairs, raise_on_missing_files=True)
        return {path: local.read_bytes() for path, local in pairs}

    def paths(self, bucket: str, prefix: str | None = None) -> list[str]:
        """Every path in the bucket, in the order of the hub."""
        return [item.path for item in self.api.list_bucket_tree(bucket, prefix, recursive=True)]

    def infos(self, bucket: str, paths: list[str]) -> dict:
        return {info.path: info for info in self.api.get_bucket_paths_info(bucket, paths)}


def equal(got, want, what: str = "") -> None:
    if got != want:
        raise AssertionError(f"{what or 'values differ'}:\n   got: {_short(got)}\n  want: {_short(want)}")


def _short(value) -> str:
    text = repr(value)
    return text if len(text) < 600 else f"{text[:600]}… ({len(text)} characters)"


@contextmanager
def refused(kind: type[Exception], status: int | None = None) -> Iterator[None]:
    """The block must raise exactly this class, with this HTTP status where there is one."""
    try:
        yield
    except kind as error:
        equal(type(error).__name__, kind.__name__, f"class of the refusal ({error})")
        if status is not None:
            assert isinstance(error, HfHubHTTPError)
            equal(error.response.status_code, status, f"status of the refusal ({error})")
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


def run(only: list[str]) -> int:
    """Runs the checks whose name contains one of `only`, all of them if it is empty.

    Returns the exit code.
    """
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for name, function in CHECKS:
        if only and not any(part in name for part in only):
            continue
        started = time.monotonic()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                function(Context())
            outcome, detail = "passed", ""
        except Skip as reason:
            outcome, detail = "skipped", f": {reason}"
        except Exception:
            outcome, detail = "failed", f"\n{traceback.format_exc()}"
        counts[outcome] += 1
        print(f"{outcome:8}{name} ({time.monotonic() - started:.1f} s){detail}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()), flush=True)
    return 0 if counts["failed"] == 0 and counts["passed"] > 0 else 1


def main() -> None:
    sys.exit(run(sys.argv[1:]))
