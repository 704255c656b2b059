"""What `optimize` and `eval` stand on: one opened task (hipwright.machine), and the files that are handed in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hipwright.errors import BadInput
from hipwright.events import Listener
from hipwright.machine import Machine, Workbench, existing_file, machine

__all__ = ["Machine", "Workbench", "existing_file", "machine", "read_text", "workbench"]


@contextmanager
def workbench(
    task: Path,
    targets: tuple[str, ...],
    *,
    seed: int | None,
    unsafe: bool,
    listener: Listener,
    gpu_memory_gb: float = 0.0,
) -> Iterator[Workbench]:
    """One task on a machine of its own; see `machine` and `Machine.open`."""
    existing_file(task, "task")
    with (
        machine(targets, unsafe=unsafe, gpu_memory_gb=gpu_memory_gb) as made,
        made.open(task, seed=seed, listener=listener) as bench,
    ):
        yield bench


def read_text(path: Path, what: str) -> str:
    """A text file's content; BadInput when it cannot be read or is not UTF-8."""
    try:
        return existing_file(path, what).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"the {what} {path} is not UTF-8 text: byte {error.start} is wrong") from error
    except OSError as error:
        raise BadInput(f"cannot read the {what} {path}: {error.strerror}") from error
