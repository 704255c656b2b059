"""One warm machine for all tests that judge real programs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hipwright.cli import session
from tests import warm


@pytest.fixture(scope="session")
def machine() -> Iterator[session.Machine]:
    with warm.zygotes(), session.machine(("gfx942", "gfx950", "cpu"), unsafe=False) as made:
        yield made
