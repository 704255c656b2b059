"""Captures by torch: in which order, and what a failure leaves. Stand-ins play torch.cuda, for want of a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hipwright.api.live.device_graphs import SHARE, CudaGraphs

GPU: Any = SimpleNamespace(type="cuda", index=1)


class Device:
    """What torch.cuda was asked for, in order."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.current = self.stream("main")
        self.selected, self.inside = 0, False

    def stream(self, name: str) -> Any:
        return SimpleNamespace(name=name, wait_stream=lambda other: self.said.append(f"{name} waits for {other.name}"))

    @contextlib.contextmanager
    def on(self, device: Any) -> Iterator[None]:
        before, self.selected = self.selected, device.index
        try:
            yield
        finally:
            self.selected = before

    @contextlib.contextmanager
    def under(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before


class Graph:
    device: Device
    broken = False

    def capture_begin(self, pool: Any, capture_error_mode: str) -> None:
        self.device.said.append(f"begin in {pool} ({capture_error_mode})")

    def capture_end(self) -> None:
        self.device.said.append("end")
        if self.broken:
            raise RuntimeError("the capture is invalid")

    def replay(self) -> None:
        self.device.said.append("replay")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made, names = Device(), iter(range(100))
    Graph.device = made
    for name, value in {
        "current_device": lambda: made.selected,
        "is_current_stream_capturing": lambda: made.inside and made.selected == 1,
        "current_stream": lambda device: made.current,
        "Stream": lambda device: made.stream(f"side {next(names)}"),
        "device": made.on,
        "stream": made.under,
        "CUDAGraph": Graph,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0, raising=False)
    over = lambda index, pool: made.said.append(f"{pool} of {index} is over")  # noqa: E731
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", over, raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=SHARE * 100))
    monkeypatch.setattr("hipwright.api.live.device_graphs.GraphPool", lambda device: SimpleNamespace(handle=lambda: 5))
    return made


def test_a_capture_is_on_a_stream_of_its_own_after_a_call_there(device: Device) -> None:
    graphs = CudaGraphs()

    def call() -> int:
        device.said.append(f"call on {device.current.name}")
        return 3

    replay, result = graphs.capture(GPU, call)
    replay()
    order = ["call on side 0", "begin in 5 (thread_local)", "call on side 0", "end", "main waits for side 0", "replay"]
    assert result == 3 and device.said == ["side 0 waits for main", *order]
    graphs.capture(GPU, call)
    assert "side 1 waits for main" not in device.said  # the graphs of one stream share a place


@pytest.mark.parametrize("broken", [False, True])
def test_after_a_failure_the_error_is_the_calls_and_the_place_is_left(
    device: Device, broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs, count = CudaGraphs(), iter(range(10))
    monkeypatch.setattr(Graph, "broken", broken)

    def fails_the_second_time() -> None:
        if next(count) == 1:
            raise ValueError("reads a value")

    with pytest.raises(ValueError, match="reads a value"):
        graphs.capture(GPU, fails_the_second_time)
    freed = ["5 of 1 is over"] if broken else []
    assert device.said[-2 - broken :] == ["end", *freed, "main waits for side 0"]
    monkeypatch.setattr(Graph, "broken", False)
    graphs.capture(GPU, lambda: None)
    assert "side 1 waits for main" in device.said


def test_the_tensors_device_is_asked_whether_it_captures(device: Device) -> None:
    graphs = CudaGraphs()
    assert not graphs.capturing(GPU)
    device.inside = True
    assert graphs.capturing(GPU) and device.selected == 0


def test_what_graphs_keep_is_a_part_of_the_devices_memory(device: Device) -> None:
    graphs = CudaGraphs()
    assert graphs.reserve(GPU, 60) and not graphs.reserve(GPU, 41) and graphs.reserve(GPU, 40)
    graphs.release(GPU, 60)
    assert graphs.reserve(GPU, 60) and not graphs.reserve(GPU, 1)
