"""New tasks: typed mutations of a syntax tree, the self-check, and tasks by a scripted model."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import pytest

from hipwright.agents.task_generator import TRIES, TaskGenerator, code_of
from hipwright.llm.call_log import MemoryCallLog
from hipwright.llm.client import Client
from hipwright.llm.cost.budget import Budget, SpendingLimits
from hipwright.llm.specs import parse_specs
from hipwright.sandbox import Zygote
from hipwright.synth.check import TaskRefused, check, check_text, task_text_key
from hipwright.synth.mutate import KINDS, mutations
from tests import warm
from tests.llm.server import LocalProvider

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("bias_gelu", "small_cnn", "layernorm_residual", "mlp_gelu")
PARENTS = {name: (EXAMPLES / f"{name}.py").read_text() for name in NAMES}

TASK = """import torch
from torch import nn

ROWS = 12


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width))

    def forward(self, x):
        return torch.relu(x * self.scale).sum(dim=-1)


def get_inputs():
    return [torch.randn(ROWS, 20)]


def get_init_inputs():
    return [20]
"""


@pytest.fixture(scope="module")
def zygote() -> Zygote:
    return warm.host()


def by_detail(source: str, seed: int = 0) -> dict[str, str]:
    return {change.detail: change.source for change in mutations(source, random.Random(seed))}


# ---------------------------------------------------------------- by the engine, without a process


def test_every_kind_of_change_is_found_and_says_what_it_did() -> None:
    found = mutations(TASK, random.Random(1))
    assert {change.kind for change in found} == set(KINDS)
    for change in found:
        tree = ast.parse(change.source)
        assert change.detail in (ast.get_docstring(tree) or "") and task_text_key(change.source) != task_text_key(TASK)


def test_a_size_changes_wherever_it_stands_and_nowhere_else() -> None:
    ((detail, changed),) = [one for one in by_detail(TASK).items() if one[0].startswith("size 20 is")]
    new = detail.rsplit(" ", 1)[1]
    assert f"torch.randn(ROWS, {new})" in changed and f"return [{new}]" in changed
    assert "20" not in changed.split("ROWS")[1]
    (batch,) = [text for detail, text in by_detail(TASK).items() if detail.startswith("leading size 12 is")]
    assert "ROWS = 12" not in batch and "torch.randn(ROWS, 20)" in batch


def test_operators_are_swapped_within_their_family_and_appended_last() -> None:
    found = by_detail(TASK)
    swapped = {detail.split(" ")[0]: text for detail, text in found.items() if " is appended" not in detail}
    assert "torch.nn.functional." in swapped["relu"] and ".relu(" not in swapped["relu"]
    assert ".sum(" not in swapped["sum"] and "dim=-1" in swapped["sum"]
    appended = [text for detail, text in found.items() if detail.endswith("is appended")]
    assert len(appended) == 3 and all("last = torch.relu" in text for text in appended)
    pair = TASK.replace("return torch.relu(x * self.scale).sum(dim=-1)", "return x * self.scale, x")
    assert not [detail for detail in by_detail(pair) if detail.endswith("is appended")], "two outputs have no last"


def test_the_dtype_reaches_inputs_and_parameters_and_stays_where_the_file_has_its_own() -> None:
    (changed,) = [text for detail, text in by_detail(TASK).items() if detail.startswith("inputs and parameters are")]
    assert "dtype=torch." in changed and "self.to(torch." in changed
    assert not any("parameters are" in d for d in by_detail(TASK.replace("20)]", "20).to(torch.float16)]")))


def test_a_seed_draws_the_same_and_what_is_no_python_has_no_mutations() -> None:
    assert by_detail(TASK, 5) == by_detail(TASK, 5) != by_detail(TASK, 6)
    assert mutations("class Model(", random.Random(0)) == []


# ---------------------------------------------------------------- the self-check


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("import torch\n", "import torch\nimport os\n"), "imports os"),
        (("import torch\n", "import torch\nfrom .other import x\n"), "imports other"),
        (("return [20]", "return [eval('20')]"), "uses eval"),
        (("return [20]", "return [torch.load('x')]"), "uses torch.load"),
        (("return [20]", "return [torch.__dict__]"), "reads __dict__"),
        (("class Model", "class Modell"), "defines no Model"),
        (("return [20]", "return [20"), "not Python"),
        (("ROWS = 12", "ROWS = 12\n" + "# padding\n" * 3000), "characters"),
    ],
)
def test_the_text_alone(change: tuple[str, str], says: str) -> None:
    check_text(TASK)
    with pytest.raises(TaskRefused, match=says) as caught:
        check_text(TASK.replace(*change))
    assert caught.value.stage == "static"


@pytest.mark.parametrize(
    ("change", "stage"),
    [
        (("x * self.scale", "x * 0 * self.scale"), "degenerate"),
        (("torch.relu(x * self.scale)", "torch.log(x * self.scale - 9)"), "nonfinite"),
        (("x * self.scale", "x * torch.rand_like(x)"), "random"),
        (("return [20]", "return [21]"), "open"),
        (("ROWS = 12", "ROWS = 900000"), "too large"),
        (("        return torch", "        x.add_(1)\n        return torch"), "forward"),
    ],
)
def test_what_a_run_shows(zygote: Zygote, change: tuple[str, str], stage: str) -> None:
    assert change[0] in TASK
    with pytest.raises(TaskRefused) as caught:
        check("bad", TASK.replace(*change), zygote)
    assert caught.value.stage == stage, caught.value.message


def test_an_accepted_task_is_described(zygote: Zygote) -> None:
    task, described = check("rows", TASK, zygote)
    assert task.name == "rows" and task.source == TASK
    assert "aten.relu.default" in described.operators and described.parameters == 20
    assert [spec.shape for spec in described.inputs] == [(12, 20)] and described.outputs[0].shape == (12,)


def test_six_mutated_tasks_are_opened_and_what_is_dropped_is_counted(zygote: Zygote) -> None:
    made = TaskGenerator(zygote, seed=3).mutated(PARENTS, 6)
    assert len(made.accepted) == 6 and {one.parent for one in made.accepted} == set(NAMES)
    assert len({one.task.source for one in made.accepted}) == 6
    assert len({one.how.split(":")[0] for one in made.accepted}) >= 3, "the kinds of change take turns"
    assert all(one.described.operators and one.task.workloads for one in made.accepted)
    assert made.counts == {stage: sum(d.stage == stage for d in made.dropped) for stage in made.counts}
    assert "get_inputs" in made.accepted[0].task.source


def test_a_known_task_is_not_made_twice(zygote: Zygote) -> None:
    generator = TaskGenerator(zygote, seed=3)
    first = generator.mutated({"rows": TASK}, 2)
    again = generator.mutated({"rows": TASK}, 2)
    assert len(first.accepted) == len(again.accepted) == 2
    assert not {a.task.source for a in first.accepted} & {a.task.source for a in again.accepted}
    assert again.counts.get("duplicate", 0) >= 2


def test_a_model_is_told_what_was_wrong_and_mends_it(zygote: Zygote) -> None:
    """Answers with an unopenable task, a degenerate one, a valid one; later requests get no valid task."""
    bad = [TASK.replace("return [20]", "return [21]"), TASK.replace("x * self.scale", "x * 0 * self.scale")]

    def reply(messages: list[dict[str, str]], call: int) -> str:
        return f"Here it is.\n```python\n{[*bad, TASK][call]}```" if call < 3 else "I would rather not."

    with LocalProvider(reply) as provider:
        with Client(MemoryCallLog(), Budget(SpendingLimits())) as client:
            generator = TaskGenerator(zygote, seed=1, client=client, lineup=parse_specs([provider.spec()]))
            made = generator.asked(PARENTS, 2)
        talks = [seen.messages for seen in provider.requests]
    (one,) = made.accepted
    assert (one.tries, one.author, one.task.source) == (3, "llm", TASK) and one.how.startswith("mutation of")
    assert PARENTS[one.parent].strip() in talks[0][0]["content"] and len(talks) == 3 + TRIES
    assert "refused (open)" in talks[1][-1]["content"] and "refused (degenerate)" in talks[2][-1]["content"]
    assert "Compose a task" in talks[3][0]["content"] and made.counts == {"open": 1, "degenerate": 1, "static": TRIES}


def test_the_code_of_an_answer() -> None:
    assert code_of("Here:\n```python\nx = 1\ny = 2\n```\nand\n```\nz\n```\n") == "x = 1\ny = 2\n"
    assert code_of("x = 1\n") == "x = 1\n"
