"""A shipped program whose backward the engine wrote: autograd, torch.compile and opcheck through the operator."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.engine.test_backward import TASK, trained
from tests.ship.shipping import shipped


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
