"""Runs the real huggingface_hub against a hub, and checks every answer it gets.

    HF_ENDPOINT=http://127.0.0.1:8080 HF_TOKEN=hf_… python tests/python/check_hub.py [part of a name]…

HFBUCKET_TEST_READ_TOKEN and HFBUCKET_TEST_OTHER_TOKEN name a read-only token of the same user and a
token of another one; checks that need them are skipped without. Exit code 1 if a check fails.
"""

import isolation  # noqa: F401  before everything that imports huggingface_hub

import checks  # noqa: F401  fills the list
import harness

if __name__ == "__main__":
    harness.main()
