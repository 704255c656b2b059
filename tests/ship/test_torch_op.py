"""Shipped packages: schema, fake rule, torch.compile, gradients, buffers, packed weights, and refusals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from tests.ship import subjects
from tests.ship.shipping import files, shipped, write


@pytest.fixture(scope="module")
def scale(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return shipped(tmp_path_factory.mktemp("scale"), "shipped_scale", subjects.SCALE_TASK, subjects.SCALE)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("trained")
    return shipped(folder, "shipped_trained", subjects.SCALE_TASK, subjects.SCALE_BACKWARD)


def test_the_operator_is_one_to_torch(scale: Any) -> None:
    x, w = torch.randn(5, 8), torch.randn(8)
    torch.library.opcheck(torch.ops.shipped_scale.forward, (x, w))
    model = scale.default()
    with torch.no_grad():
        torch.testing.assert_close(model(x), 2 * x * model.w)
        torch.testing.assert_close(model(x.t().contiguous().t()), 2 * x * model.w)  # strides


def test_gradients_are_the_programs_own(trained: Any) -> None:
    x, w = torch.randn(5, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    # without test_schema: its mode compares the values of every tensor, and saved numbers are found on meta tensors
    kinds = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(torch.ops.shipped_trained.forward, (x, w), test_utils=kinds)
    grad = torch.randn(8, 5).t()  # not contiguous
    got = torch.autograd.grad(torch.ops.shipped_trained.forward(x, w), [x, w], grad)
    want = torch.autograd.grad(2 * x * w, [x, w], grad)
    torch.testing.assert_close(got, want)


def test_compiled_whole_and_with_free_sizes(trained: Any) -> None:
    torch._dynamo.reset()
    model = trained.default()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (5, 9):
        x = torch.randn(rows, 8, requires_grad=True)
        y = compiled(x)
        y.backward(torch.ones_like(y))
        torch.testing.assert_close(y, 2 * x * model.w)
        torch.testing.assert_close(x.grad, (2 * model.w).expand(rows, 8))


def test_without_a_backward_only_computing_a_gradient_fails(scale: Any) -> None:
    model = scale.default()
    for run in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        y = run(torch.randn(5, 8))
        assert y.requires_grad
        with pytest.raises(scale.NoBackward, match="no_grad"):
            y.sum().backward()


def test_the_fake_rule_keeps_symbols(scale: Any) -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=False)
    x = mode.from_tensor(torch.randn(5, 8))
    with mode:
        y = torch.ops.shipped_scale.forward(x, torch.empty(8))
        assert y.shape == x.shape and not isinstance(y.shape[0], int)
    meta = torch.ops.shipped_scale.forward(torch.empty(7, 8, device="meta"), torch.empty(8, device="meta"))
    assert meta.shape == (7, 8) and meta.device.type == "meta"


def test_what_is_not_claimed_is_declined(scale: Any) -> None:
    with pytest.raises(scale.Declined, match="eight columns"):
        torch.ops.shipped_scale.forward(torch.randn(5, 9), torch.randn(8))
    with pytest.raises(scale.Declined, match="the kernels are for"):
        torch.ops.shipped_scale.forward(torch.randn(5, 8), torch.randn(9))
    with pytest.raises(ValueError, match=r"a is 3\.0, and the kernels are for 2\.0"):
        scale.Module(3.0)


def test_no_gpu_is_an_error_unless_the_reference_is_asked_for(tmp_path: Path) -> None:
    made = shipped(tmp_path, "shipped_bare", subjects.SCALE_TASK, subjects.SCALE, kernels=False)
    with pytest.raises(made.NoGpu, match="allow_reference"), torch.no_grad():
        made.default()(torch.randn(5, 8))
    x = torch.randn(5, 8)
    with pytest.warns(UserWarning, match="no GPU here .*: the reference's own code runs") as said:
        model = made.default(allow_reference=True)
    assert len(said) == 1 and "\n" not in str(said[0].message)
    torch.testing.assert_close(model(x), 2 * x)


def test_the_comparison_says_in_a_line_what_is_missing(tmp_path: Path) -> None:
    write(tmp_path, files("shipped_line", subjects.SCALE_TASK, subjects.SCALE))

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "shipped_line", *more]
        return subprocess.run(command, cwd=tmp_path / "src", capture_output=True, text=True, check=False)

    done = run()
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 1 and "no GPU here" in done.stderr
    done = run("--reference")
    assert done.returncode == 0 and done.stdout == "0: (5, 8) torch.float32: the reference's\n"


def test_written_buffers_nesting_and_returned_inputs(tmp_path: Path) -> None:
    made = shipped(tmp_path, "shipped_norm", subjects.NORM_TASK, subjects.NORM)
    reference, model = made.reference.Model(), made.default()
    x, more = torch.randn(6, 4), {"scale": torch.randn(4), "n": 3}
    with torch.no_grad():
        want, got = reference(x, more), model(x, more)
        assert got["same"][0] is not x  # results of an operator are new tensors
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(model.state_dict(), reference.state_dict())
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x, more), reference(x, more))
        torch.testing.assert_close(model.state_dict(), reference.state_dict())
    with pytest.raises(RuntimeError, match="training=True"):
        model.eval()(x, more)


def test_packed_weights_follow_their_parameters(tmp_path: Path) -> None:
    made = shipped(tmp_path, "shipped_layers", subjects.LAYERS_TASK, subjects.LAYERS)
    model = made.default()
    x = torch.randn(3, 4)
    packs: list[int] = []
    kernels = made.KERNELS.on(torch.device("cpu"))
    real = kernels.pack
    kernels.pack = lambda *args: (packs.append(1), real(*args))
    with torch.no_grad():
        for change in (None, lambda w: w.mul_(3), lambda w: setattr(w, "data", torch.randn_like(w))):
            if change:
                change(model.layers[0].weight)
            before = len(packs)
            for _ in range(2):
                torch.testing.assert_close(model(x), made.reference.Model.forward(model, x))
            assert len(packs) == before + 1
    assert "SimpleNamespace" in (tmp_path / "src/shipped_layers/plan.py").read_text()  # a module list as a value


def test_it_needs_nothing_of_hipwright(tmp_path: Path) -> None:
    write(tmp_path, files("shipped_alone", subjects.SCALE_TASK, subjects.SCALE))
    code = (
        "import sys; sys.path.insert(0, 'src'); import shipped_alone, torch\n"
        "assert not any(name.startswith('hipwright') for name in sys.modules)\n"
        "model = shipped_alone.default().to('meta')\n"
        "assert model(torch.empty(3, 8, device='meta')).shape == (3, 8)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
