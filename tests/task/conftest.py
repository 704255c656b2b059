import pytest
from task_files import FILES

from hipwright.sandbox import Zygote
from hipwright.task import open_task


@pytest.fixture(scope="package")
def zygote():
    with Zygote(("torch", "hipwright.task.host.warm"), name="task host") as it:
        yield it


@pytest.fixture(scope="package")
def load(zygote):
    """load("conv") -> the handle of tests/task/files/conv.py, opened once."""
    handles = {}

    def get(name):
        if name not in handles:
            handles[name] = open_task(FILES / f"{name}.py", zygote)
        return handles[name]

    yield get
    for handle in handles.values():
        handle.close()
