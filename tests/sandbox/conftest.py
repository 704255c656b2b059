from pathlib import Path

import pytest

from hipwright.sandbox import Zygote

HERE = Path(__file__).parent
SERVICE = f"{HERE / 'service.py'}:Service"


@pytest.fixture(scope="package")
def zygote():
    """A contained zygote that can see this folder."""
    with Zygote(ro=[HERE]) as it:
        yield it


@pytest.fixture
def session(zygote):
    with zygote.session(SERVICE, {}) as it:
        yield it


def open_files() -> int:
    """How many file descriptors this process holds."""
    return len(list(Path("/proc/self/fd").iterdir()))
