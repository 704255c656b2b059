"""The build cache: blobs by content, builds by key. Safe for concurrent processes.

A file is written under a temporary name and then renamed, so a reader never sees part of one, and two writers of the
same content leave the same file.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import msgspec

from hipwright.disk import naming
from hipwright.records import Build, content_key


class BuildCache:
    """A folder of blobs and of the builds that name them. Created on first use; anything in it may be deleted.

    scope: `load` finds builds that were stored under the same scope; "" is the shared one.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.scope = ""

    def put(self, data: bytes) -> str:
        """Store bytes; returns their SHA-256, the blob's name."""
        blob = hashlib.sha256(data).hexdigest()
        path = self.path(blob)
        if not path.is_file() or path.stat().st_size != len(data):
            _write(path, data)
        return blob

    def get(self, blob: str) -> bytes:
        """The bytes of a blob. Raises KeyError where it is missing or does not match its name."""
        try:
            data = self.path(blob).read_bytes()
        except OSError as error:
            raise KeyError(blob) from error
        if hashlib.sha256(data).hexdigest() != blob:
            self.path(blob).unlink(missing_ok=True)
            raise KeyError(blob)
        return data

    def path(self, blob: str) -> Path:
        """The path of a blob, whether it exists or not."""
        if len(blob) != 64 or not set(blob) <= set("0123456789abcdef"):
            raise KeyError(blob)
        return self.folder / "blobs" / blob[:2] / blob

    def load(self, key: str) -> Build | None:
        """The build stored under a key, marked `cached`; None where it is unknown, unreadable, or lacks a blob."""
        try:
            build = Build.from_json(self._entry(key).read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None
        if not all(self.path(blob).is_file() for blob in (build.blob, build.isa_blob) if blob):
            return None
        return msgspec.structs.replace(build, cached=True)

    def store(self, key: str, build: Build) -> None:
        """Store a build under a key, replacing an older one."""
        _write(self._entry(key), build.to_json().encode())

    def _entry(self, key: str) -> Path:
        if not key.isalnum():
            raise ValueError(f"not a key: {key!r}")
        if self.scope:
            key = content_key(self.scope, key)
        return self.folder / "builds" / key[:2] / f"{key}.json"


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with naming(path), os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
