"""The shared task host and candidate zygote, and the user's build cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hipwright.audit.cases import CORPUS
from hipwright.machine import Machine, machine
from hipwright.sandbox import Zygote
from hipwright.task import TaskHandle, open_task
from hipwright.toolchain.cache import BuildCache
from hipwright.verify import Oracle
from tests import warm

TASKS = CORPUS / "tasks"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine of the cpu target with builds of its own."""
    with machine(("cpu",), unsafe=False, cache=tmp_path_factory.mktemp("builds")) as opened:
        yield opened


@pytest.fixture(scope="session")
def cache() -> BuildCache:
    return warm.builds()


@pytest.fixture(scope="session")
def task_zygote() -> Zygote:
    return warm.host()


@pytest.fixture(scope="session")
def candidates() -> Zygote:
    return warm.candidates()


class Tasks:
    """Handles and oracles by task name, opened once."""

    def __init__(self, zygote: Zygote) -> None:
        self._zygote = zygote
        self._handles: dict[Path, TaskHandle] = {}
        self._oracles: dict[Path, Oracle] = {}

    def handle(self, path: Path) -> TaskHandle:
        if path not in self._handles:
            self._handles[path] = open_task(path, self._zygote)
        return self._handles[path]

    def oracle(self, name: str | Path) -> Oracle:
        path = name if isinstance(name, Path) else TASKS / f"{name}.py"
        if path not in self._oracles:
            self._oracles[path] = Oracle(self.handle(path), seed=20)
        return self._oracles[path]

    def close(self) -> None:
        for handle in self._handles.values():
            handle.close()


@pytest.fixture(scope="session")
def tasks(task_zygote: Zygote) -> Iterator[Tasks]:
    found = Tasks(task_zygote)
    yield found
    found.close()
