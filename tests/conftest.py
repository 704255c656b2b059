"""Settings and selection for all tests.

`make test` takes some 15 minutes on two processors: of a test marked `matrix(keep=N)` it runs N of the parameters,
evenly spread from the first to the last, and it skips tests marked `exhaustive`. Of the slowest tests (`--turns`,
tests/slowest.txt) it runs TURN_SECONDS, which the digest of the code draws. `--all` (`make test-all`), or naming a test
with `::`, runs everything. Property tests have no deadline, which would depend on the load of the machine; where tests
have turns, their examples are those of each test's own text, so that luck fails no run, and else new ones. Tests share
processes that import torch (tests/warm.py), and time limits allow for other load (tests/load.py).
"""

import compileall
import hashlib
import random
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, register_random, settings

import hipwright
from tests import warm

SLOWEST, TURN_SECONDS = Path(__file__).parent / "slowest.txt", 900.0

settings.register_profile("hipwright", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("turns", settings.get_profile("hipwright"), derandomize=True)
settings.load_profile("hipwright")


class TorchRandom:
    """PyTorch's generator as Hypothesis sets it: an example draws the same tensors each time."""

    def seed(self, seed: Any) -> None:
        torch().manual_seed(seed)

    def getstate(self) -> Any:
        return torch().get_rng_state()

    def setstate(self, state: Any) -> None:
        torch().set_rng_state(state)


TORCH_RANDOM = TorchRandom()


def torch() -> Any:
    """PyTorch, where a test module has imported it."""
    return sys.modules["torch"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="whole matrices and exhaustive tests too")
    parser.addoption("--turns", action="store_true", help="of the tests in tests/slowest.txt, a part by turns")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--turns"):
        settings.load_profile("turns")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """The tensors that a test draws depend on the test alone."""
    if "torch" in sys.modules:
        register_random(TORCH_RANDOM)
        torch().manual_seed(0)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compiles hipwright to bytecode once.

    Contained processes write no bytecode, and none is written under PYTHONDONTWRITEBYTECODE, so hundreds of processes
    would each compile what they import.
    """
    if not hasattr(session.config, "workerinput"):
        compileall.compile_dir(Path(hipwright.__file__).parent, quiet=2, rx=re.compile("corpus"))


def pytest_sessionfinish() -> None:
    warm.end()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all") or any("::" in arg for arg in config.args):
        return
    waiting = not_in_turn(SLOWEST.read_text(), sources_digest()) if config.getoption("--turns") else set()
    matrices: dict[str, list[pytest.Item]] = defaultdict(list)
    left: set[pytest.Item] = set()
    for item in items:
        if item.get_closest_marker("exhaustive") or (config.getoption("--turns") and _function(item) in waiting):
            left.add(item)
        elif item.get_closest_marker("matrix"):
            matrices[item.nodeid.partition("[")[0]].append(item)
    for members in matrices.values():
        marker = members[0].get_closest_marker("matrix")
        keep = spread(len(members), marker.kwargs["keep"] if marker else len(members))
        left.update(item for at, item in enumerate(members) if at not in keep)
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]


def _function(item: pytest.Item) -> str:
    """A test's function as tests/slowest.txt names it."""
    return item.nodeid.partition("[")[0].removeprefix("tests/")


def not_in_turn(listed: str, seed: str) -> set[str]:
    """The tests of tests/slowest.txt that are left out: all but TURN_SECONDS of them, drawn by the seed."""
    seconds = {name: float(took) for took, name in (line.split(maxsplit=1) for line in listed.splitlines())}
    names = sorted(seconds)
    random.Random(seed).shuffle(names)
    spent = [sum(seconds[name] for name in names[:count]) for count in range(len(names))]
    return {name for name, before in zip(names, spent, strict=True) if before >= TURN_SECONDS}


def sources_digest() -> str:
    """A digest of the package's modules: every change of the code gives other tests their turn."""
    digest = hashlib.sha256()
    for path in sorted(Path(hipwright.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def spread(count: int, keep: int) -> set[int]:
    """`keep` indices below `count`, evenly spread, the first and the last included."""
    if keep >= count:
        return set(range(count))
    return {round(i * (count - 1) / max(keep - 1, 1)) for i in range(keep)}
