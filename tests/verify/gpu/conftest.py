"""Workers and references of the GPU judge on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hipwright.sandbox import Zygote
from hipwright.task import TaskHandle
from hipwright.toolchain.cache import BuildCache
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.hosts.shared_hosts import SharedHosts
from hipwright.verify.gpu.reference import DeviceReference, open_reference
from tests.verify.conftest import TASKS, Tasks


@pytest.fixture(scope="module")
def workers(cache: BuildCache) -> Iterator[Zygote]:
    """A zygote of processes that run candidates."""
    modules = ("torch", "hipwright.verify.gpu.worker", "hipwright.verify.worker.warm")
    with Zygote(modules, ro=[cache.folder], name="GPU candidates") as zygote:
        yield zygote


@pytest.fixture(scope="module")
def worker(workers: Zygote, cache: BuildCache) -> Iterator[CandidateWorker]:
    """A worker that runs candidates on the CPU, each in a process of its own."""
    with CandidateWorker(workers, "cpu", "cpu", cache) as found:
        yield found


@pytest.fixture(scope="module", params=["a host each", "shared hosts"])
def reference_zygote(request: pytest.FixtureRequest) -> Iterator[Zygote | SharedHosts]:
    """Where device references open their hosts: one process for each, or two that they share."""
    with Zygote(("torch", "hipwright.task.device.server"), name="reference host") as it, SharedHosts(it, 2) as shared:
        yield it if request.param == "a host each" else shared


@pytest.fixture(scope="module")
def open_on_cpu(reference_zygote: Zygote, tasks: Tasks) -> Iterator[object]:
    """open_on_cpu("softmax") -> (handle, reference), opened once."""
    opened: dict[Path, tuple[TaskHandle, DeviceReference]] = {}

    def get(name: str | Path, limit: int = 0) -> tuple[TaskHandle, DeviceReference]:
        path = name if isinstance(name, Path) else TASKS / f"{name}.py"
        if path not in opened:
            handle = tasks.handle(path)
            opened[path] = (handle, open_reference(handle, reference_zygote, "cpu", memory_limit_bytes=limit))
        return opened[path]

    yield get
    for _, reference in opened.values():
        reference.close()
