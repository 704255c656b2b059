"""The folder of an export: written under a temporary name and renamed when it is complete.

A killed or failed export leaves the earlier one as it was.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hipwright.errors import BadInput

MANIFEST = "export.json"


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """A new folder that replaces `out` when the block succeeds; after an error `out` is unchanged.

    Raises BadInput if `out` holds anything but an earlier export, or cannot be written.
    """
    out = out.absolute()
    old = out.with_name(f".{out.name}.old")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _clean_up(out, old)
        _check_replaceable(out)
        new = Path(tempfile.mkdtemp(prefix=f".{out.name}.{os.getpid()}.", dir=out.parent))
        new.chmod(0o755)
    except OSError as error:
        raise BadInput(f"cannot write to {out}: {error.strerror}", hint="choose another --out folder") from error
    try:
        yield new
        _sync(new)
        if out.exists():
            out.rename(old)
        new.rename(out)
        _sync(out.parent, deep=False)
    except BaseException:
        if old.exists() and not out.exists():
            old.rename(out)
        shutil.rmtree(new, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _check_replaceable(out: Path) -> None:
    """Raise BadInput for a file, and for a folder that is neither empty nor an earlier export."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file", hint="--out takes a folder")
    if out.exists() and any(out.iterdir()) and not (out / MANIFEST).exists():
        raise BadInput(f"{out} holds other files and no earlier export", hint="choose a new or an empty folder")


def _clean_up(out: Path, old: Path) -> None:
    """After a kill: restore the earlier export, and remove temporary folders of ended processes."""
    if old.exists() and not out.exists():
        old.rename(out)
    shutil.rmtree(old, ignore_errors=True)
    for path in out.parent.glob(f".{out.name}.*"):
        process = path.name.removeprefix(f".{out.name}.").split(".")[0]
        if process.isdigit() and not _alive(int(process)):
            shutil.rmtree(path, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sync(folder: Path, *, deep: bool = True) -> None:
    """fsync a folder, and with `deep` everything in it."""
    for path in [*(folder.rglob("*") if deep else ()), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
