"""What every export holds whatever its format: LICENSE, NOTICE, and the manifest hipwright.json."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hipwright import __version__
from hipwright.ship.subject import Files, ShippedProgram

MANIFEST = "hipwright.json"
LICENSE = Path(__file__).parent / "LICENSE.txt"
_SCHEMA = 1
_NOTICE = """Written by hipwright {version}: program {key}, for the task {task}.

{verified}

Code of hipwright's own (device headers, runtime modules, launchers and the texts around the kernels) is under the
Apache License 2.0, in the file LICENSE. The reference (the task's PyTorch code, wherever a copy of it is here) belongs
to its author, under its author's terms; hipwright changes nothing about them.
"""
_VERIFIED = """The program was verified against the task's reference before it was exported (on: {targets}). That holds
for the shapes that its guards accept; it is no warranty."""
_BACKWARD = """
The verification ran its forward. Its backward is not verified by it; `hipwright backward` verifies what it writes."""
_UNVERIFIED = """NOT VERIFIED: the program was exported with --unverified. Nothing says that it computes what the
reference does."""


def notice(subject: ShippedProgram, verified_on: Sequence[str]) -> str:
    """The text of NOTICE: the same in every format."""
    said = _VERIFIED.format(targets=", ".join(verified_on)) if verified_on else _UNVERIFIED
    said += _BACKWARD if verified_on and subject.parsed.has_backward else ""
    return _NOTICE.format(version=__version__, key=subject.program.key, task=subject.name, verified=said)


def with_common_files(form: str, subject: ShippedProgram, files: Files, verified_on: Sequence[str]) -> dict[str, bytes]:
    """A format's files as bytes, with LICENSE, NOTICE and the manifest."""
    texts = {**files, "LICENSE": LICENSE.read_bytes(), "NOTICE": notice(subject, verified_on)}
    made = {path: text.encode() if isinstance(text, str) else text for path, text in sorted(texts.items())}
    return {**made, MANIFEST: _manifest(form, subject, made, verified_on)}


def _manifest(form: str, subject: ShippedProgram, files: Mapping[str, bytes], verified_on: Sequence[str]) -> bytes:
    manifest = {
        "hipwright": __version__,
        "schema": _SCHEMA,
        "format": form,
        "task": subject.name,
        "program_key": subject.program.key,
        "verified_on": list(verified_on),
        "files": {path: digest(data) for path, data in files.items()},
    }
    return (json.dumps(manifest, indent=2) + "\n").encode()


def digest(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def read_manifest(data: bytes) -> dict[str, Any] | None:
    """A manifest of an export, or None where the text is none."""
    try:
        found = json.loads(data)
    except ValueError:
        return None
    whole = isinstance(found, dict) and isinstance(found.get("files"), dict) and isinstance(found.get("format"), str)
    return found if whole else None
