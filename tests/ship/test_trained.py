"""A shipped program whose backward the engine wrote: autograd, torch.compile and opcheck through the operator."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.engine.test_backward import TASK, trained
from tests.ship.shipping import shipped

COUNT = 65
MANY = f"""
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for number in range({COUNT}):
            setattr(self, f"w{{number}}", torch.nn.Parameter(torch.rand(6)))

    def forward(self, x):
        y = x * 2.0
{"".join(f"        y = torch.sin(y + self.w{number}){chr(10)}" for number in range(COUNT))}        return y

def get_inputs():
    return [torch.rand(4, 6)]
"""


def test_the_engines_backward_as_an_operator(tmp_path: Path) -> None:
    torch.manual_seed(0)
    _, both, _ = trained(TASK)
    made = shipped(tmp_path, "shipped_engine", TASK, both.text)
    model = made.default()
    x, target = torch.randn(6, 8, requires_grad=True), torch.randint(0, 5, (6,))
    arguments = (x, target, *(p.detach().requires_grad_() for p in model.parameters()))
    names = [a.name for a in torch.ops.shipped_engine.forward.default._schema.arguments]
    given = ["x", "target", *(name.replace(".", "_") for name, _ in model.named_parameters())]
    by_name = dict(zip(given, arguments, strict=True))
    torch.library.opcheck(torch.ops.shipped_engine.forward, tuple(by_name[name] for name in names))
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    for run, rows in ((model, 6), (compiled, 6), (compiled, 11)):
        x, target = torch.randn(rows, 8, requires_grad=True), torch.randint(0, 5, (rows,))
        of = [x, *model.parameters()]
        loss, chances = made.reference.Model.forward(model, x, target)
        want = torch.autograd.grad(loss + (chances * chances).sum(), of)
        loss, chances = run(x, target)
        got = torch.autograd.grad(loss + (chances * chances).sum(), of)
        torch.testing.assert_close(got, want)
    alone, want_alone = (
        torch.autograd.grad(run(x, target)[0], [x])  # the second output has no gradient
        for run in (compiled, lambda *given: made.reference.Model.forward(model, *given))
    )
    torch.testing.assert_close(alone, want_alone)


def test_more_arguments_than_an_operator_takes_are_a_list(tmp_path: Path) -> None:
    """torch's operators have at most 64: a network has a parameter for each, and backward what was saved as well."""
    made = shipped(tmp_path, "shipped_many", MANY, trained(MANY)[1].text)
    assert made.spec.LISTED == (True,) * (1 + COUNT) and made.spec.BACKWARD_LISTED is not None
    model, own = made.default(), made.reference.Model()
    own.load_state_dict(model.state_dict())
    x = torch.rand(4, 6, requires_grad=True)
    state = [getattr(model, path) for _, path, _, _ in made.spec.STATE]
    torch.library.opcheck(torch.ops.shipped_many.forward, ([x, *state],))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for run in (model, compiled):
        got = torch.autograd.grad(run(x).sum(), [x, *model.parameters()])
        want = torch.autograd.grad(own(x).sum(), [x, *own.parameters()])
        torch.testing.assert_close(run(x), own(x))
        torch.testing.assert_close(got, want)
