"""The executor, built once a session."""

from __future__ import annotations

import pytest

from hipwright import config
from hipwright.toolchain.cache import BuildCache
from tests.sim.harness import Simulated


@pytest.fixture(scope="session")
def simulated() -> Simulated:
    """Snippets run here; the executor comes from the user's cache, as it takes 15 s to build."""
    return Simulated(BuildCache(config.cache_dir()))
