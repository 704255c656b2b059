"""Settings and selection for all tests.

`make test` takes under 15 minutes on two processors: of a test marked `matrix(keep=N)` it runs N of the parameters,
evenly spread from the first to the last, and it skips tests marked `exhaustive`. `--all` (`make test-all`), or naming a
test with `::`, runs everything. Property tests have no deadline, which would depend on the load of the machine. Tests
share processes that import torch (tests/warm.py), and time limits allow for other load (tests/load.py).
"""

import compileall
import re
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import hipwright
from tests import warm

settings.register_profile("hipwright", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hipwright")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="whole matrices and exhaustive tests too")


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
    matrices: dict[str, list[pytest.Item]] = defaultdict(list)
    left: set[pytest.Item] = set()
    for item in items:
        if item.get_closest_marker("exhaustive"):
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


def spread(count: int, keep: int) -> set[int]:
    """`keep` indices below `count`, evenly spread, the first and the last included."""
    if keep >= count:
        return set(range(count))
    return {round(i * (count - 1) / max(keep - 1, 1)) for i in range(keep)}
