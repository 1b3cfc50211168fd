"""One half of the cross test: writes fixed objects into a bucket, or verifies what somebody wrote.

    write_read.py write  <namespace>/<bucket> [prefix]
    write_read.py verify <namespace>/<bucket> [prefix]

The objects are those of fixed_objects.json, their bytes those of tests/support's `noise`. HF_ENDPOINT
and HF_TOKEN say where. Exit code 1 and a message if anything differs.
"""

import isolation

import json
import struct
import sys
from pathlib import Path

from huggingface_hub import HfApi

MASK = (1 << 64) - 1


def noise(seed: int, length: int) -> bytes:
    """splitmix64, eight bytes at a time."""
    state = (seed * 0x9E3779B97F4A7C15 & MASK) ^ 0xD1B54A32D192ED03
    words = []
    for _ in range(0, length, 8):
        state = state + 0x9E3779B97F4A7C15 & MASK
        z = state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        words.append(z ^ z >> 31)
    return struct.pack(f"<{len(words)}Q", *words)[:length]


def fixed_objects(prefix: str) -> dict[str, bytes]:
    text = Path(__file__).with_name("fixed_objects.json").read_text(encoding="utf-8")
    return {prefix + item["name"]: noise(item["seed"], item["size"]) for item in json.loads(text)}


def write(api: HfApi, bucket: str, objects: dict[str, bytes]) -> None:
    api.create_bucket(bucket, exist_ok=True)
    api.batch_bucket_files(bucket, add=[(data, path) for path, data in objects.items()])


def verify(api: HfApi, bucket: str, objects: dict[str, bytes], prefix: str) -> list[str]:
    listed = {file.path: file for file in api.list_bucket_tree(bucket, prefix or None)}
    faults = [f"missing: {path}" for path in objects.keys() - listed.keys()]
    faults += [f"unexpected: {path}" for path in listed.keys() - objects.keys()]
    found = [path for path in objects if path in listed]
    pairs = [(listed[path], isolation.SCRATCH / f"{i}") for i, path in enumerate(found)]
    api.download_bucket_files(bucket, pairs)
    for path, (file, local) in zip(found, pairs):
        if file.size != len(objects[path]):
            faults.append(f"{path} is listed with {file.size} bytes, not {len(objects[path])}")
        if local.read_bytes() != objects[path]:
            faults.append(f"{path} has other bytes")
    return faults


def main() -> None:
    mode, bucket, prefix = (sys.argv[1:] + [""])[:3]
    prefix = f"{prefix.rstrip('/')}/" if prefix else ""
    api = HfApi(endpoint=isolation.ENDPOINT, token=isolation.TOKEN)
    objects = fixed_objects(prefix)
    match mode:
        case "write":
            write(api, bucket, objects)
        case "verify":
            if faults := verify(api, bucket, objects, prefix):
                sys.exit("\n".join(faults))
        case _:
            sys.exit(f"{mode}: neither write nor verify")
    print(f"{mode}: {len(objects)} objects, {sum(map(len, objects.values()))} bytes")


if __name__ == "__main__":
    main()
