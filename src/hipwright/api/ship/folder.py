"""The folder of an export: its own, by its manifest, or nobody's; nothing of the user's is overwritten."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hipwright.api.files import prepare_folder, write_bytes
from hipwright.errors import BadInput
from hipwright.ship.notice import MANIFEST, digest, read_manifest

_HINT = "choose another --out folder"


def check_own(out: Path, form: str) -> None:
    """Raises BadInput where `out` is a file, holds other files, another format's export, or one that was changed."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file", hint=_HINT)
    if not out.is_dir() or not any(out.iterdir()):
        return
    manifest = _manifest(out)
    if manifest is None:
        raise BadInput(f"{out} holds files that are no export of hipwright's: nothing is overwritten", hint=_HINT)
    if manifest["format"] != form:
        raise BadInput(f"{out} holds an export in the format {manifest['format']}, not {form}", hint=_HINT)
    for path, known in manifest["files"].items():
        if (out / path).is_file() and digest((out / path).read_bytes()) != known:
            raise BadInput(f"{out / path} was changed since it was exported: it is not overwritten", hint=_HINT)


def write_export(out: Path, files: Mapping[str, bytes]) -> None:
    """Writes the files, the manifest first; those of an earlier export that are no longer made are removed."""
    prepare_folder(out)
    earlier = _manifest(out) or {"files": {}}
    for path in earlier["files"]:
        if path not in files and (out / path).is_file() and (out / path).resolve().is_relative_to(out.resolve()):
            (out / path).unlink()
    for path in sorted(files, key=lambda name: (name != MANIFEST, name)):
        prepare_folder((out / path).parent)
        write_bytes(out / path, files[path])


def _manifest(out: Path) -> dict[str, Any] | None:
    path = out / MANIFEST
    return read_manifest(path.read_bytes()) if path.is_file() else None
