"""Fixtures of the client's tests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from hipwright.llm.call_log import MemoryCallLog
from hipwright.llm.client import Client
from hipwright.llm.cost.budget import Budget, SpendingLimits
from tests.llm.calls.client_tools import Opener
from tests.llm.server import (
    LocalProvider,
)


@pytest.fixture
def provider_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LocalProvider.environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def opened() -> Iterator[Opener]:
    """Opens clients and closes them after the test; waits between attempts are skipped by default."""
    clients: list[Client] = []

    def make(log: Any = None, budget: Budget | None = None, **options: Any) -> Client:
        options.setdefault("sleep", lambda seconds: time.sleep(min(seconds, 1.0) / 50))
        clients.append(Client(log or MemoryCallLog(), budget or Budget(SpendingLimits()), **options))
        return clients[-1]

    yield make
    for client in clients:
        client.close()
