"""What capture keeps of a module: state, nesting, mutation, constants; and what it cannot capture."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch

from hipwright.capture.forward import capture
from hipwright.capture.graph import Graph, Mutation
from hipwright.capture.joint import trace
from hipwright.engine import explain, write
from hipwright.engine.rewrite.specialise import specialise
from hipwright.errors import GuardFailed, TaskError
from tests.engine.harness import Op, captured, compare, leaves, reference, run


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class Training(torch.nn.Module):
    """BatchNorm in training mode: two buffers and a counter are overwritten."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(x))


def test_buffers_are_updated_in_place() -> None:
    model, x = Training(), torch.randn(4, 3, 5, 5) + 100
    program = write(captured(model, [x]))
    expected, native, buffers = reference(model, [x])
    got, after = run(program, model, [x])
    compare(got, expected, native)
    for name, value in buffers.items():
        torch.testing.assert_close(after[name].double(), value.double(), rtol=1e-5, atol=1e-6)


class Nested(torch.nn.Module):
    """Nested outputs, a written slice, a constant, an unused result and dropout that is off."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList([torch.nn.Linear(6, 6), torch.nn.Dropout(0.5)]).eval()

    def forward(self, x: torch.Tensor, extra: list[torch.Tensor]) -> Any:
        y = self.parts[1](self.parts[0](x)) * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        y.mul_(2.0)
        y[:, 1:3] = extra[0][:, :2]
        y.exp()
        return {"a": y, "b": (x.transpose(0, 1), [extra[1].sum(), y])}


def test_nesting_views_and_writes() -> None:
    model, inputs = Nested(), [torch.randn(5, 6), [torch.randn(5, 3), torch.randn(7)]]
    graph = captured(model, inputs)
    got, _ = run(write(graph), model, inputs)
    want = model(*inputs)
    assert list(got) == ["a", "b"] and isinstance(got["b"], tuple) and isinstance(got["b"][1], list)
    for g, w in zip(leaves(got), leaves(want), strict=True):
        torch.testing.assert_close(g, w)
    assert not explain(graph)["library"]


def test_the_specialised_graph_guards_its_sizes() -> None:
    model, x = Training(), torch.randn(4, 3, 5, 5)
    text = write(specialise(captured(model, [x]))).text
    assert "x.shape[0] == 4" in text and "x.shape[3] == 5" in text


def test_non_contiguous_inputs() -> None:
    model, x = Training(), torch.randn(5, 5, 3, 8).permute(0, 2, 1, 3)[..., 1:7:2]
    program = write(captured(model, [x]))
    expected, native, _ = reference(model, [x])
    got, _ = run(program, model, [x])
    compare(got, expected, native)


class Joined(torch.nn.Module):
    def forward(self, first: torch.Tensor, second: torch.Tensor, third: torch.Tensor) -> Any:
        return first - 2 * second, second @ third


def test_one_tensor_in_two_places_is_two_inputs() -> None:
    """The file may pass one tensor twice; a caller of the program passes what they like."""
    model, x = Joined(), torch.randn(4, 4)
    program = write(captured(model, [x, x, x.t()]))
    others = [torch.randn(4, 4), torch.randn(4, 4), torch.randn(4, 4).t()]
    got, _ = run(program, model, others)
    for g, w in zip(got, model(*others), strict=True):
        torch.testing.assert_close(g, w)


class Wrapped(OrderedDict):  # type: ignore[type-arg]
    """A class of outputs that takes a dict for its own items, as those of transformers and diffusers do."""

    def __init__(self, sample: Any = None) -> None:
        super().__init__(sample if isinstance(sample, dict) else {"sample": sample})


torch.utils._pytree.register_pytree_node(
    Wrapped, lambda made: (list(made.values()), list(made)), lambda values, _: Wrapped(*values)
)


class Outputs(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return Wrapped(x.exp()), [Wrapped(x + 1)]


def test_a_class_of_outputs_is_a_dict_of_the_same_keys() -> None:
    model, x = Outputs(), torch.randn(4, 4)
    got, _ = run(write(captured(model, [x])), model, [x])
    assert list(got[0]) == ["sample"]
    torch.testing.assert_close(got[0]["sample"], x.exp())
    torch.testing.assert_close(got[1][0]["sample"], x + 1)


class DataDependent(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum().item() > 0 else x


def test_control_flow_on_data_cannot_be_captured() -> None:
    with pytest.raises(TaskError, match="cannot capture"):
        capture(DataDependent(), [torch.ones(3)])


class Mutating(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)


def test_an_input_that_is_written_is_a_result_of_the_graph() -> None:
    graph = captured(Mutating(), [torch.ones(3)])
    assert graph.mutations == (Mutation(access="x", node=graph.nodes[-1].name),)
    assert graph.output == {"node": graph.nodes[-1].name}, "the input itself is returned"


class UnreducedLikelihood(torch.nn.Module):
    """torch 2.13 gives the loss the shape () when the batch is free; all that follows would have it too."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.nll_loss(x, labels, reduction="none").clamp(-0.5, 0.5)


def test_a_shape_that_export_loses_is_not_believed() -> None:
    model, inputs = UnreducedLikelihood(), [torch.randn(6, 5), torch.randint(0, 5, (6,))]
    graph = captured(model, inputs)
    assert graph.nodes[-1].outs[0].shape == (6,)
    got, _ = run(write(graph), model, inputs)
    expected, native, _ = reference(model, inputs)
    compare(got, expected, native)


class Differences(torch.nn.Module):
    """Three slices, two shorter than the input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[2:, 1:-1] + x[:-2, 1:-1] - 2.0 * x[1:-1, 1:-1]


def test_sizes_that_a_slice_would_leave_negative_are_not_claimed() -> None:
    program = write(captured(Differences(), [torch.randn(9, 7)]))
    for shape in ((5, 4), (2, 9)):
        x = torch.randn(*shape)
        got, _ = run(program, Differences(), [x])
        compare(got, *reference(Differences(), [x])[:2])
    with pytest.raises(GuardFailed, match="within the tensor"):
        run(program, Differences(), [torch.randn(1, 9)])


class KeepsState(torch.nn.Module):
    """A hidden state in a plain attribute, replaced at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.hidden = torch.nn.Linear(12, 8), torch.zeros(3, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden = torch.tanh(self.mix(torch.cat([x, self.hidden], 1)))
        return self.hidden * 2


def test_a_plain_attribute_that_is_assigned_is_state() -> None:
    model, inputs = KeepsState(), [torch.randn(3, 4)]
    before = model.hidden
    graph = captured(model, inputs)
    assert [m.access for m in graph.mutations] == ["self.hidden"]
    assert model.hidden is before and "hidden" not in dict(model.named_buffers())
    got, tensors = run(write(graph), model, inputs)
    expected, native, _ = reference(model, inputs)
    compare(got, expected, native)
    assert torch.allclose(tensors["hidden"].double() * 2, expected, atol=1e-5)


class PooledToGrid(torch.nn.Module):
    """A view whose sizes hold for multiples of the strides alone: export cannot solve the inequality."""

    def __init__(self) -> None:
        super().__init__()
        self.down = torch.nn.Sequential(*(torch.nn.Conv2d(c, 2 * c, 3, 2, 1) for c in (3, 6, 12)))
        self.pool, self.fc = torch.nn.AvgPool2d(3), torch.nn.Linear(24, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.pool(self.down(x)).view(x.shape[0], -1))


def test_what_export_cannot_solve_is_captured_for_its_sizes() -> None:
    graph = captured(PooledToGrid(), [torch.randn(2, 3, 24, 24)])
    assert not graph.symbols and "x.shape[2] == 24" in graph.guards


class Picks(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].sum()


class Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(("model", "said"), [(Picks(), "return x[x > 0].sum()"), (Branches(), "x.sum() > 0")])
def test_a_forward_that_depends_on_values_is_told_where(model: torch.nn.Module, said: str) -> None:
    with pytest.raises(TaskError, match=r"line \d+: `.*") as refused:
        capture(model, [torch.randn(4, 5)])
    assert said in refused.value.message and "torch.where" in (refused.value.hint or "")


@torch.library.custom_op("hipwright_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Foreign(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(doubled(x))


def test_operators_that_are_not_torchs_are_named() -> None:
    with pytest.raises(TaskError, match=r"hipwright_tests\.doubled") as raised:
        capture(Foreign(), [torch.randn(4, 4)])
    assert raised.value.hint


class Masked(torch.nn.Module):
    """A constant that a submodule's forward makes; its name begins with the module's."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.ModuleDict({"layer": Shifted()})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner["layer"](x)


class Shifted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tensor([0.5, 1.5, -2.0, 3.0])


def test_a_constant_of_a_submodules_forward_is_written_into_the_program() -> None:
    model, x = Masked(), torch.randn(3, 4)
    got, _ = run(write(captured(model, [x])), model, [x])
    torch.testing.assert_close(got, model(x))


def test_a_chunk_that_one_element_would_leave_out_is_not_claimed() -> None:
    graph = captured(Op(lambda x: torch.chunk(x, 2, 0)[-1]), [torch.randn(33)])
    (guard,) = (g for g in graph.guards if g.endswith(">= 1"))
    symbol = graph.symbols[0].name
    assert [eval(guard, {symbol: n}) for n in (1, 2, 3, 33)] == [False, True, True, True]


class AsksForExport(torch.nn.Module):
    """A forward that takes another way where it is exported, and fails there; it holds a parameter and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.map = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = None if torch.compiler.is_exporting() else torch.ones(x.shape[1])
        return self.map(x) * mask[: x.shape[1]] + torch.tensor([1.0, 2.0, 3.0, 4.0])


def test_a_module_that_fails_only_where_it_is_exported_is_captured() -> None:
    model, x = AsksForExport(), torch.randn(3, 4)
    graph = captured(model, [x])
    got, _ = run(write(graph), model, [x])
    torch.testing.assert_close(got, model(x))


class Gradient(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            return torch.autograd.grad((y**3).sum(), y)[0]


def test_gradients_are_traced_at_fixed_sizes_too() -> None:
    model, x = Gradient(), torch.randn(3, 4)
    graph = Graph.from_dict(trace(model, [x], ["x"], False).to_dict())
    assert not graph.dynamic
    got, _ = run(write(graph), model, [x])
    torch.testing.assert_close(got, 3 * x**2)


class Ordered(torch.nn.Module):
    """An einsum as torch calls it where opt_einsum is installed: with the order of its products."""

    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch._VF.einsum("ij,jk,kl->il", [a, b, c], path=[1, 2, 0, 1])
        return found.relu()


def test_the_order_of_an_einsum_is_not_part_of_it() -> None:
    model, inputs = Ordered(), [torch.randn(5, 7), torch.randn(7, 6), torch.randn(6, 9)]
    program = write(captured(model, inputs))
    assert "path" not in program.text
    expected, native, _ = reference(model, inputs)
    compare(run(program, model, inputs)[0], expected, native)
