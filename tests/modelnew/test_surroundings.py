"""What a file may not learn about its process, and what looks similar and is allowed."""

from __future__ import annotations

import pytest

from hipwright.program.modelnew.check import check

CLASS = """import os, sys, inspect
import torch
import torch.nn as nn
{top}
class ModelNew(nn.Module):
    def forward(self, x):
        {body}
        return x
"""

READS = [
    "sys.argv[1:]",
    "os.environ.copy()",
    "'X' in os.environ",
    "len(os.sched_getaffinity(0))",
    "os.getcwd()",
    "torch.get_num_threads()",
    "getattr(os, 'get' + 'ppid')()",
    "vars(sys)['argv']",
    "sys.__dict__",
    "torch.utils.cpp_extension.__file__",
    "type(self).__module__",
    "__name__ != '__main__'",
    "__spec__",
    "sys.path[0]",
    "[sys][0]",
]
ALLOWED = [
    "os.environ.get('CUDA_HOME')",
    "os.environ['MAX_JOBS']",
    "os.path.join('/tmp', 'a')",
    "print(x.shape, file=sys.stderr)",
    "sys.path.insert(0, '/tmp')",
    "sys.stdout.flush()",
    "getattr(torch, 'relu')(x)",
    "sys.maxsize",
]


def refusals(top: str = "", body: str = "pass") -> list[str]:
    return [found.rule for found in check(CLASS.format(top=top, body=body)) if found.refused]


@pytest.mark.parametrize("what", READS)
def test_the_process_is_not_read(what: str) -> None:
    for found in (refusals(body=what), refusals(top=f"KNOWN = {what.replace('type(self)', 'nn.Module')}")):
        assert found and set(found) <= {"E1", "E4", "E6"}


@pytest.mark.parametrize("what", ALLOWED)
def test_what_looks_similar_is_allowed(what: str) -> None:
    assert not refusals(body=what)


@pytest.mark.parametrize(
    "block", ["ModelNew.forward = None", "class ModelNew: pass", "global ModelNew\n    ModelNew = None", "go.x = 1"]
)
def test_the_main_block_changes_nothing(block: str) -> None:
    text = CLASS.format(top="def go(x):\n    return x\n", body="pass") + f'\nif __name__ == "__main__":\n    {block}\n'
    assert any(found.refused and found.rule == "E4" for found in check(text))


def test_an_honest_main_block_is_allowed() -> None:
    text = (
        CLASS.format(top="", body="pass")
        + '\nif __name__ == "__main__":\n    m = ModelNew()\n    m.eval()\n    m.x = 3\n'
    )
    assert not [found for found in check(text) if found.refused]
