"""A pool of graphs holds a graph of its own until it is let go. Stand-ins play torch.cuda, for want of a GPU."""

from __future__ import annotations

import contextlib
import gc
import itertools
import weakref
from typing import Any

import pytest
import torch

from hipwright.device.graph_pool import GraphPool

alive: weakref.WeakSet[Any] = weakref.WeakSet()


class Graph:
    """Refuses a second begin, and a pool that it was not given."""

    def __init__(self) -> None:
        alive.add(self)
        self.pool: Any = None
        self.open = False

    def capture_begin(self, pool: Any, capture_error_mode: str) -> None:
        assert not self.open and capture_error_mode == "thread_local"
        self.pool, self.open = pool, True

    def capture_end(self) -> None:
        assert self.open
        self.open = False


class Stream:
    def __init__(self, device: str) -> None:
        self.device = device

    def wait_stream(self, other: Stream) -> None:
        """Nothing runs here."""


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> GraphPool:
    numbers = itertools.count(1)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, next(numbers)))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    return GraphPool("cpu")


def test_nothing_is_captured_before_it_is_needed(pool: GraphPool) -> None:
    gc.collect()
    assert not alive


def test_the_handle_stays_and_so_does_its_graph(pool: GraphPool) -> None:
    first = pool.handle()
    gc.collect()
    assert pool.handle() == first
    (anchor,) = alive
    assert anchor.pool == first and not anchor.open


def test_after_letting_go_the_graph_is_gone_and_the_next_pool_is_another(pool: GraphPool) -> None:
    first = pool.handle()
    pool.release()
    gc.collect()
    assert not alive
    assert pool.handle() != first
