"""Keeps a run of huggingface_hub to itself. Import this before huggingface_hub.

Reads the hub and its tokens from the environment, then points every cache of the client into a
temporary folder, and switches off whatever would leave this machine.
"""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

if "huggingface_hub" in sys.modules:
    raise ImportError("import isolation before huggingface_hub, which reads its environment once")


def _required(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        sys.exit(f"{name} is not set: give the endpoint and a token of a hub to test against")
    return value


ENDPOINT = _required("HF_ENDPOINT").rstrip("/")
if "127.0.0.1" not in ENDPOINT and "localhost" not in ENDPOINT:
    sys.exit(f"{ENDPOINT} is not on this machine, and these scripts create and delete buckets")
TOKEN = _required("HF_TOKEN")
# A token of the same user that may only read, and one of somebody else.
READ_TOKEN = os.environ.get("HFBUCKET_TEST_READ_TOKEN", "").strip()
OTHER_TOKEN = os.environ.get("HFBUCKET_TEST_OTHER_TOKEN", "").strip()

SCRATCH = Path(tempfile.mkdtemp(prefix="hfbucket-python-"))
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)

for name in list(os.environ):
    if name.startswith(("HF_", "HUGGING_FACE_")) or name.lower() in ("http_proxy", "all_proxy"):
        del os.environ[name]
os.environ.update(
    HF_ENDPOINT=ENDPOINT,
    HF_TOKEN=TOKEN,
    HF_HOME=str(SCRATCH / "home"),
    HF_XET_CACHE=str(SCRATCH / "xet"),
    HF_HUB_DISABLE_TELEMETRY="1",
    HF_HUB_DISABLE_PROGRESS_BARS="1",
    HF_HUB_DISABLE_UPDATE_CHECK="1",
    HF_XET_TELEMETRY_ENABLED="0",
    DO_NOT_TRACK="1",
)
