"""Files that call their extension by another name or under a condition are converted, or the reason is said."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.audit.cases import select
from hipwright.errors import InfrastructureError, ProgramError
from hipwright.program import parse
from hipwright.program.convert.modelnew import from_modelnew
from hipwright.program.modelnew.build import check_target
from hipwright.records import Program
from hipwright.sandbox import Zygote
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.verify import verify_cpu

(CASE,) = select(["relu_inline"], form="modelnew")
TASK = CASE.task_path.read_text()
BEFORE = CASE.text[: CASE.text.index("class ModelNew")]
FORWARD = "class ModelNew(nn.Module):\n    def forward(self, x):\n        {}\n"
HELPER = "def go(x):\n    if x.shape[0] > 3:\n        return ext.relu(x)\n    return torch.relu(x)\n\n\n"
OWN = "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.op = f\n\n"
AUTOGRAD = (
    "class Relu(torch.autograd.Function):\n    @staticmethod\n"
    + HELPER.strip()
    .replace("def go(x", "def forward(ctx, x")
    .replace("\n", "\n    ")
    .replace("def forward", "    def forward", 1)
    + "\n\n\n"
)
CONVERTED = {
    "another name": "f = ext.relu\n" + FORWARD.format("return f(x)"),
    "an attribute": "f = ext.relu\n" + OWN + "    def forward(self, x):\n        return self.op(x)\n",
    "a local": FORWARD.format("op = ext.relu; return op(x)"),
    "a choice": FORWARD.format("return ext.relu(x) if x.shape[0] > 3 else torch.relu(x)"),
    "a chosen value": FORWARD.format("y = ext.relu(x) if self.training else torch.relu(x); return y"),
    "on a GPU": FORWARD.format("if not x.is_cuda: return torch.relu(x)\n        return ext.relu(x)"),
    "an error": FORWARD.format("if x.dim() != 2: raise ValueError('no')\n        return ext.relu(x)"),
    "a helper": HELPER + FORWARD.format("return go(x)"),
    "an autograd function": AUTOGRAD + FORWARD.format("return Relu.apply(x)"),
}
REFUSED = {
    "two functions": ("f = ext.relu\nf = torch.tanh\n" + FORWARD.format("return f(x)"), "f is assigned more than once"),
    "a parameter": (
        "f = ext.relu\n" + FORWARD.format("return f(x)").replace("self, x", "self, x, f=0"),
        "more than once",
    ),
    "a list": (FORWARD.format("return [ext.relu(v) for v in (x,)][0]"), "inside a condition or a comprehension"),
}


@pytest.mark.parametrize("name", CONVERTED)
def test_it_is_converted_and_judged(name: str, tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    program = from_modelnew(BEFORE + CONVERTED[name], TASK)
    parsed = parse(program.text)
    assert parsed.launched
    builds = {(64, c): cpu.build(parsed.hip, parsed.defines(), wave=64, checked=c, cache=cache) for c in (True, False)}
    oracle = tasks.oracle(CASE.task_path)
    verdict = verify_cpu(parsed, Program(text=program.text), builds, oracle, candidates, cache=cache, gate="fast")
    assert verdict.passed, f"{verdict.message}\n{program.text}"


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_ambiguous_is_not(name: str) -> None:
    text, why = REFUSED[name]
    with pytest.raises(ProgramError, match=why) as raised:
        from_modelnew(BEFORE + text, TASK)
    with pytest.raises(InfrastructureError, match=why):
        check_target(BEFORE + text, "cpu", raised.value.message)
