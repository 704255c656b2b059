"""The walkthroughs of CONTRIBUTING.md and docs/engine.md: their code is taken from the pages, registered and used."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import torch

from hipwright import optimize
from hipwright.api.bench.plan import BenchRequest, plan_benchmark
from hipwright.engine.lower import arithmetic, table
from hipwright.engine.partition import operators
from hipwright.engine.templates import registry
from hipwright.evaluation.suite import find_tasks
from hipwright.search import POLICIES
from hipwright.targets import TARGETS
from tests import warm
from tests.engine.harness import Op, check

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
FILES = re.compile(r"```(?:python|toml)\n# (?P<path>[\w/.]+)\n(?P<code>.*?)```", re.DOTALL)
TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.linalg.cross(a, b) * 0.5

def get_inputs():
    return [torch.randn(20000, 3), torch.randn(20000, 3)]

def get_init_inputs():
    return []
"""


def shown(path: str) -> str:
    """The text that the page shows under a path of the repository."""
    (code,) = (found["code"] for found in FILES.finditer(PAGE.read_text(encoding="utf-8")) if found["path"] == path)
    return code


@cache
def module(path: str) -> ModuleType:
    """The module that the page shows under a path of the repository."""
    made = ModuleType(Path(path).stem)
    exec(compile(shown(path), path, "exec"), made.__dict__)
    return made


@pytest.mark.slow
def test_a_template_a_policy_and_an_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search by the policy finds a verified program of the template, built and estimated for the architecture too."""
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "archive"))
    template = module("src/hipwright/engine/templates/cross.py").cross
    monkeypatch.setitem(registry.TEMPLATES, "linalg_cross", [template])
    monkeypatch.setitem(POLICIES, "neighbours", module("src/hipwright/search/policies/neighbours.py").Neighbours)
    target = module("src/hipwright/targets/mi325x.py").MI325X
    with TARGETS.added(target), warm.zygotes():
        result = optimize(TASK, budget=3, policy="neighbours", targets=["gfx942", "mi325x", "cpu"], seed=1)
    assert result.passed and result.program is not None and result.evaluation is not None
    assert result.evaluations == 3
    assert "linalg_cross_mul[" in result.program.text and result.evaluation.coverage == 1.0
    # the same code at more bandwidth: a smaller share of the roofline where the launch bounds both
    mi300, mi325 = (result.evaluation.targets[name].estimate for name in ("gfx942", "mi325x"))
    assert mi300 is not None and mi325 is not None and mi325.roofline_fraction < mi300.roofline_fraction


def test_a_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark driver finds the suite by its name, and its tasks."""
    file = tmp_path / "benchmarks/suites/elementwise.toml"
    file.parent.mkdir(parents=True)
    file.write_text(shown("benchmarks/suites/elementwise.toml"), encoding="utf-8")
    (tmp_path / "benchmarks/kernels").symlink_to(ROOT / "benchmarks/kernels")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "archive"))
    names = {task.name for task in find_tasks(Path("elementwise"))}
    families = ("pointwise", "transposes")
    assert names == {f"{f}/{path.stem}" for f in families for path in (ROOT / "benchmarks/kernels" / f).glob("*.py")}
    plan = plan_benchmark(BenchRequest(suite=Path("elementwise"), targets=("cpu",)))
    assert {entry.task.name for entry in plan.entries} == names


def test_an_operator() -> None:
    page = (ROOT / "docs/engine.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n# in src/hipwright/engine/lower/arithmetic.py\n(.*?)```", page, re.DOTALL)
    with mock.patch.dict(table.TABLE), mock.patch.dict(operators.TABLE):
        known = set(table.TABLE)
        exec(compile(code, "docs/engine.md", "exec"), {**vars(arithmetic), "math": math})
        (added,) = set(table.TABLE) - known
        operators.TABLE[added] = table.TABLE[added]  # a module of the package is loaded before the two are joined
        check(Op(lambda x: torch.deg2rad(x) + 1), [torch.randn(5, 7)], other=[torch.randn(3, 9)])
