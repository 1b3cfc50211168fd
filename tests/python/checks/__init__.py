"""All checks. Importing a module adds its checks to the list."""

from . import buckets, objects, names, listing, copying, syncing, filesystem, refusals, command  # noqa: F401
