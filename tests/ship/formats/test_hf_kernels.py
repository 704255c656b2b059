"""hf-kernels: build.toml, the Python part over stand-ins for the native operators, and the native sources' builds."""

from __future__ import annotations

import importlib
import itertools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import torch

from hipwright.ship.formats.hf_kernels import BUILDER_ARCHS
from hipwright.toolchain.amd import offline
from hipwright.toolchain.extension.nvcc import find_nvcc
from tests.engine.harness import CACHE
from tests.ship import subjects
from tests.ship.formats import checkers
from tests.ship.formats.made import exported, refused
from tests.ship.shipping import on_cpu

NAMES = itertools.count()
DEFINED = re.compile(r'ops\.def\("(launch_(\w+)\([^"]*)"\)')
REGISTRATION = """#pragma once
#define HW_EXPAND(name, ops) TORCH_LIBRARY(name, ops)
#define TORCH_LIBRARY_EXPAND(name, ops) HW_EXPAND(name, ops)
#define REGISTER_EXTENSION(name) static int registered = 1;
"""
"""In place of the builder's own registration.h, whose module of Python needs its build."""


def imported(folder: Path, name: str, program: str) -> ModuleType:
    """The package, its native operators replaced by ones of the same schemas that run on the cpu target."""
    unique = f"_{name}_{next(NAMES)}"
    library = torch.library.Library(unique, "DEF")
    kernels = on_cpu(program)

    def launcher(kernel: str) -> Any:
        def launch(grid: list[int], block: list[int], lds: int, stream: int, *given: Any) -> None:
            getattr(kernels, kernel)(tuple(grid), tuple(block), lds, *given)

        return launch

    for schema, kernel in DEFINED.findall((folder / "torch-ext/torch_binding.cpp").read_text()):
        library.define(schema)
        library.impl(f"launch_{kernel}", launcher(kernel), "CPU")
    package = folder / "torch-ext" / name
    prefix = f"def add_op_namespace_prefix(name):\n    return '{unique}::' + name\n"
    (package / "_ops.py").write_text(f"import torch\n\nops = torch.ops.{unique}\n\n\n{prefix}")
    with mock.patch.object(sys, "path", [str(package.parent), *sys.path]):
        for known in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
            del sys.modules[known]
        made = importlib.import_module(name)
    made.__dict__["_kept"] = library
    made.KERNELS.on = lambda device: made.KERNELS._made
    return made


@pytest.fixture
def no_stream() -> Iterator[None]:
    with mock.patch.object(torch.cuda, "current_stream", lambda: mock.Mock(cuda_stream=0)):
        yield


def test_build_toml_has_what_edition_5_asks_for(tmp_path: Path) -> None:
    """By our own reading of the format; test_the_builders_own_reading has theirs."""
    folder = exported(tmp_path, "hf-kernels", subjects.SCALE_TASK, subjects.SCALE, "--name", "my_scale")
    build = tomllib.loads((folder / "build.toml").read_text())
    assert set(build) == {"general", "torch", "kernel"}
    general = build["general"]
    assert re.fullmatch(r"[a-z][-a-z0-9]*[a-z0-9]", general["name"]) and general["name"] == "my-scale"
    assert general["edition"] == 5 and general["version"] == 1 and general["license"] == "Apache-2.0"
    assert general["backends"] == ["cuda", "rocm"] == sorted(one["backend"] for one in build["kernel"].values())
    for kernel in build["kernel"].values():
        assert set(kernel) <= {"backend", "depends", "include", "src", "rocm-archs"} and kernel["depends"] == ["torch"]
        assert set(kernel.get("rocm-archs", [])) <= BUILDER_ARCHS
    sources = [*build["torch"]["src"], *(path for one in build["kernel"].values() for path in one["src"])]
    assert [path for path in sources if not (folder / path).is_file()] == []
    rocm = next(one for one in build["kernel"].values() if one["backend"] == "rocm")
    assert "gfx942" in rocm["rocm-archs"] and "gfx1151" not in rocm["rocm-archs"]
    for path in ("flake.nix", "CARD.md", "torch-ext/my_scale/__init__.py", "tests/test_my_scale.py"):
        assert (folder / path).is_file()


def test_the_module_and_its_operator(tmp_path: Path, no_stream: None) -> None:
    folder = exported(tmp_path, "hf-kernels", subjects.SCALE_TASK, subjects.SCALE_BACKWARD, "--name", "hub_scale")
    made = imported(folder, "hub_scale", subjects.SCALE_BACKWARD)
    x, w = torch.randn(5, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    torch.testing.assert_close(made.hub_scale(x, w), 2 * x * w)
    operator = getattr(torch.ops, made.spec.NAME).forward
    kinds = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(operator, (x, w), test_utils=kinds)
    model = made.default()
    torch._dynamo.reset()
    for run in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        y = run(x)
        (grad,) = torch.autograd.grad(y.sum(), [x])
        torch.testing.assert_close(y, 2 * x * model.w)
        torch.testing.assert_close(grad, (2 * model.w).expand(5, 8))
    with pytest.raises(ValueError, match=r"a is 3\.0"):
        made.Module(3.0)(x)


def test_the_layer_is_one_that_kernelize_takes(tmp_path: Path, no_stream: None) -> None:
    """A pure layer: no constructor, no members but forward and the two facts; it reads the replaced module's state."""
    folder = exported(tmp_path, "hf-kernels", subjects.SCALE_TASK, subjects.SCALE, "--name", "hub_layer")
    made = imported(folder, "hub_layer", subjects.SCALE)
    layer = made.layers.HubLayer
    assert issubclass(layer, torch.nn.Module) and layer.__init__ is torch.nn.Module.__init__
    assert {name for name in vars(layer) if not name.startswith("__")} == {
        "forward",
        "has_backward",
        "can_torch_compile",
    }
    assert (layer.has_backward, layer.can_torch_compile) == (False, True)
    model, x = made.reference.Model(2.0), torch.randn(5, 8)
    with torch.no_grad():
        torch.testing.assert_close(layer.forward(model, x), model(x))


def test_buffers_and_nesting(tmp_path: Path, no_stream: None) -> None:
    folder = exported(tmp_path, "hf-kernels", subjects.NORM_TASK, subjects.NORM, "--name", "hub_norm")
    made = imported(folder, "hub_norm", subjects.NORM)
    reference, model = made.reference.Model(), made.default()
    x, more = torch.randn(6, 4), {"scale": torch.randn(4), "n": 3}
    with torch.no_grad():
        torch.testing.assert_close(model(x, more), reference(x, more))
        torch.testing.assert_close(model.state_dict(), reference.state_dict())


def test_without_a_gpu_the_reference_runs_when_asked(tmp_path: Path) -> None:
    folder = exported(tmp_path, "hf-kernels", subjects.SCALE_TASK, subjects.SCALE, "--name", "hub_bare")
    made = imported(folder, "hub_bare", subjects.SCALE)
    del made.KERNELS.on
    with pytest.raises(made.NoGpu, match="allow_reference"), torch.no_grad():
        made.default()(torch.randn(5, 8))
    with pytest.warns(UserWarning, match="hub-bare: no GPU here"):
        model = made.default(allow_reference=True)
    x = torch.randn(5, 8)
    torch.testing.assert_close(model(x), 2 * x)


def test_a_program_without_kernels_is_refused(tmp_path: Path) -> None:
    library = "HIP = r''''''\n\ndef forward(self, x):\n    return x * self.a * self.w\n"
    assert "no kernels" in refused(tmp_path, "hf-kernels", subjects.SCALE_TASK, library)


def test_the_kernels_build_for_amd(tmp_path: Path) -> None:
    folder = exported(tmp_path, "hf-kernels", subjects.SCALE_TASK, subjects.SCALE_BACKWARD, "--name", "hub_amd")
    source = (folder / "hub_amd_rocm/kernels.hip").read_text()
    build = offline.build(source, "gfx942", {}, cache=CACHE, unsafe=True)
    assert build.ok, build.log
    assert {kernel.name for kernel in build.kernels} == {"scale", "back_w"}


@pytest.mark.slow
def test_the_kernels_build_for_nvidia(tmp_path: Path) -> None:
    """Shuffles, ballots and clang's atomics are among what the headers for nvcc must have."""
    nvcc = find_nvcc()
    if nvcc is None:
        pytest.skip("no nvcc")
    calls = """    if (__hip_atomic_load(&y[0], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) != a)
        __hip_atomic_store(&y[0], __shfl_xor(a, 1) + __ballot(n > 1), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
"""
    program = subjects.SCALE.replace("    if (i < n) y[i] = x[i]", calls + "    if (i < n) y[i] = x[i]")
    assert program != subjects.SCALE
    folder = exported(tmp_path, "hf-kernels", subjects.SCALE_TASK, program, "--name", "hub_nvidia")
    place = folder / "hub_nvidia_cuda"
    command = [str(nvcc), "-arch=sm_90", "-std=c++17", f"-I{place}", "-c", str(place / "kernels.cu"), "-o", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.exhaustive
def test_the_binding_registers_its_operators(tmp_path: Path) -> None:
    """torch_binding.cpp by g++ with torch's headers; the launchers and registration.h are stand-ins."""
    from torch.utils.cpp_extension import include_paths, library_paths

    folder = exported(tmp_path, "hf-kernels", subjects.SCALE_TASK, subjects.SCALE, "--name", "hub_native")
    ext = folder / "torch-ext"
    (tmp_path / "registration.h").write_text(REGISTRATION)
    launchers = 'extern "C" int hipwright_launch_scale(void**, const unsigned*, unsigned, void*) { return 0; }\n'
    (tmp_path / "launchers.cpp").write_text(launchers)
    flags = ["-O0", "-std=c++20", "-shared", "-fPIC", "-DTORCH_EXTENSION_NAME=_hub_native_test", f"-I{tmp_path}"]
    flags += [*(f"-I{path}" for path in include_paths()), *(f"-L{path}" for path in library_paths())]
    sources = [str(ext / "torch_binding.cpp"), str(tmp_path / "launchers.cpp")]
    out = str(tmp_path / "native.so")
    command = ["g++", *flags, *sources, "-ltorch_cpu", "-lc10", "-o", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    torch.ops.load_library(out)
    operator = torch.ops._hub_native_test.launch_scale.default
    declared = DEFINED.search((ext / "torch_binding.cpp").read_text())
    assert declared is not None and str(operator._schema) == f"_hub_native_test::{declared[1]}"
    with pytest.raises(NotImplementedError, match="CPU"):
        operator([1], [64], 0, 0, torch.ones(1), torch.ones(1), torch.ones(1), 2.0, 1, 1)


@pytest.mark.exhaustive
def test_the_builders_own_reading(tmp_path: Path) -> None:
    """`kernels` of the package index reads build.toml by the builder's own code; the benchmark is a class of its."""
    folder = exported(tmp_path, "hf-kernels", subjects.SCALE_TASK, subjects.SCALE, "--name", "hub_read")
    code = f"""
import importlib.util
from kernels._rust import Build
build = Build.open({str(folder)!r})
assert [str(one) for one in build.general.backends] == ["cuda", "rocm"], build.general.backends
from kernels.benchmark import Benchmark
spec = importlib.util.spec_from_file_location("benchmark", {str(folder / "benchmarks/benchmark.py")!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
assert issubclass(module.HubReadBenchmark, Benchmark)
"""
    checkers.run(checkers.installed("kernels==0.17.2"), code)
