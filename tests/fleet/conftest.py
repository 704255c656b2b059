"""A real Ray cluster of several nodes on this machine, whose devices sleep."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from benchmarks.fleet.local_fleet import LocalFleet, local_fleet

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed (extra `fleet`)")


@pytest.fixture(scope="module")
def fleet() -> Iterator[LocalFleet]:
    """A head, and two nodes "one" and "two" with two fake seats each."""
    with local_fleet() as made:
        made.add("one", {"fake": 2, "gfx942": 1}, device="MI300X")
        made.add("two", {"fake": 2, "sm_90": 1}, device="H100")
        yield made
