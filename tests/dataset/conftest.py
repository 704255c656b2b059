"""One warm machine for all tests that judge real programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from hipwright.machine import Machine
from hipwright.machine import machine as open_machine
from tests import warm


@pytest.fixture(scope="module", autouse=True)
def _warm() -> Iterator[None]:
    with warm.zygotes():
        yield


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    with ExitStack() as stack:
        with warm.zygotes():
            made = stack.enter_context(open_machine(("gfx942", "gfx950", "cpu"), unsafe=False))
        yield made
