import pytest
from contained import HERE, SERVICE

from hipwright.sandbox import Zygote


@pytest.fixture(scope="package")
def zygote():
    """A contained zygote that can see this folder."""
    with Zygote(ro=[HERE]) as it:
        yield it


@pytest.fixture
def session(zygote):
    with zygote.session(SERVICE, {}) as it:
        yield it
