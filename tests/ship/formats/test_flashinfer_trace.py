"""flashinfer-trace: the three records, stored tensors, and the solution's values against the definition's reference."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from tests.ship import subjects
from tests.ship.formats import checkers
from tests.ship.formats.made import exported, refused
from tests.ship.shipping import on_cpu

GROUPS_TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.rand(9, 4))

    def forward(self, ids, more):
        return self.w[ids] * more["k"], ids + 1

def get_input_groups():
    return [[torch.randint(0, 9, (n,)), {"k": 3}] for n in (5, 7)]
"""
GROUPS = """HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void rows(const long* ids, const float* w, float* y, long* next, long n, int k) {
    long i = blockIdx.x * 64L + threadIdx.x;
    if (i >= n * 4) return;
    y[i] = w[ids[i / 4] * 4 + i % 4] * k;
    if (i % 4 == 0) next[i / 4] = ids[i / 4] + 1;
}
'''

def forward(self, ids, more):
    n = ids.shape[0]
    y = torch.empty((n, 4))
    after = torch.empty((n,), dtype=torch.int64)
    rows[cdiv(n * 4, 64), 64](ids, self.w, y, after, n, more["k"])
    return y, after
"""


class DataSet:
    """An export, read by our own reading of the schema (flashinfer_bench.data); the published one is tested apart."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (definition,) = folder.glob("definitions/*/*.json")
        (solution,) = folder.glob("solutions/*/*/*/*.json")
        (workloads,) = folder.glob("workloads/*/*.jsonl")
        self.definition = json.loads(definition.read_text())
        self.solution = json.loads(solution.read_text())
        self.workloads = [json.loads(line) for line in workloads.read_text().splitlines()]
        assert workloads.stem == definition.stem == self.definition["name"] == self.solution["definition"]
        assert solution.stem == self.solution["name"]
        self._check()

    def _check(self) -> None:
        d, s = self.definition, self.solution
        assert set(d) == {"name", "op_type", "description", "axes", "inputs", "outputs", "reference"}
        assert not set(d["inputs"]) & set(d["outputs"])
        for spec in [*d["inputs"].values(), *d["outputs"].values()]:
            assert set(spec) == {"shape", "dtype"} and set(spec["shape"] or []) <= set(d["axes"])
        free = {name for name, axis in d["axes"].items() if axis["type"] == "var"}
        assert free <= {axis for spec in d["inputs"].values() for axis in spec["shape"] or []}
        assert set(s) == {"name", "definition", "author", "description", "spec", "sources"}
        assert s["spec"]["language"] == "python" and s["spec"]["entry_point"] == "main.py::run"
        paths = [source["path"] for source in s["sources"]]
        assert (
            len(paths) == len(set(paths)) and "main.py" in paths and all(source["content"] for source in s["sources"])
        )
        for line in self.workloads:
            assert line["definition"] == d["name"] and line["solution"] is None and line["evaluation"] is None
            assert set(line["workload"]["axes"]) == free and set(line["workload"]["inputs"]) == set(d["inputs"])

    def reference(self) -> Any:
        """The definition's run."""
        module = ModuleType("flashinfer_reference")
        exec(self.definition["reference"], module.__dict__)
        return module.run

    def built(self, place: Path, program: str) -> Any:
        """The solution as a package, as the benchmark's Python builder makes it; its kernels on the cpu target."""
        name = f"fib_{self.solution['name']}"
        for source in self.solution["sources"]:
            path = place / name / source["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source["content"])
        with mock.patch.object(sys, "path", [str(place), *sys.path]):
            module = importlib.import_module(f"{name}.main")
        module.KERNELS._made[torch.device("cpu")] = on_cpu(program)
        return module.run

    def inputs(self, line: dict[str, Any]) -> list[Any]:
        """A workload's inputs in the definition's order; random ones of a normal distribution."""
        sizes = {name: axis["value"] for name, axis in self.definition["axes"].items() if axis["type"] == "const"}
        sizes |= line["workload"]["axes"]
        found = []
        for name, spec in self.definition["inputs"].items():
            given = line["workload"]["inputs"][name]
            if given["type"] == "scalar":
                found.append(given["value"])
                continue
            shape = [sizes[axis] for axis in spec["shape"]]
            stored = given["type"] == "safetensors"
            value = self.tensor(given["path"], given["tensor_key"]) if stored else torch.randn(shape)
            assert list(value.shape) == shape and str(value.dtype) == f"torch.{spec['dtype']}"
            found.append(value)
        return found

    def tensor(self, path: str, key: str) -> torch.Tensor:
        """A stored tensor, by the format's own description."""
        raw = (self.folder / path).read_bytes()
        size = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + size])[key]
        begin, end = header["data_offsets"]
        kinds = {"F32": np.float32, "F16": np.float16, "I64": np.int64}
        values = np.frombuffer(raw[8 + size + begin : 8 + size + end], kinds[header["dtype"]])
        return torch.from_numpy(values.reshape(header["shape"]).copy())


def test_the_solution_is_the_reference(tmp_path: Path) -> None:
    data = DataSet(exported(tmp_path, "flashinfer-trace", subjects.SCALE_TASK, subjects.SCALE))
    reference, solution = data.reference(), data.built(tmp_path / "built", subjects.SCALE)
    (line,) = data.workloads
    inputs = data.inputs(line)
    torch.testing.assert_close(solution(*inputs), reference(*inputs))
    other = [torch.randn(5, 8), torch.randn(8)]  # parameters are inputs
    torch.testing.assert_close(solution(*other), 2 * other[0] * other[1])
    torch.testing.assert_close(reference(*other), 2 * other[0] * other[1])


def test_groups_are_workloads_of_one_definition(tmp_path: Path) -> None:
    data = DataSet(exported(tmp_path, "flashinfer-trace", GROUPS_TASK, GROUPS))
    assert [list(line["workload"]["axes"].values()) for line in data.workloads] == [[5], [7]]
    assert data.definition["inputs"]["more_k"] == {"shape": None, "dtype": "int64"}
    assert len({line["workload"]["uuid"] for line in data.workloads}) == 2
    reference, solution = data.reference(), data.built(tmp_path / "built", GROUPS)
    for line in data.workloads:
        inputs = data.inputs(line)
        got, wanted = solution(*inputs), reference(*inputs)
        assert isinstance(got, tuple) and len(got) == len(wanted) == 2
        torch.testing.assert_close(got, wanted)


def test_gradients_are_left_out_of_the_outputs(tmp_path: Path) -> None:
    data = DataSet(exported(tmp_path, "flashinfer-trace", subjects.SCALE_TASK, subjects.SCALE_BACKWARD))
    solution = data.built(tmp_path / "built", subjects.SCALE_BACKWARD)
    x, w = torch.randn(5, 8, requires_grad=True), torch.randn(8)
    out = solution(x, w)
    assert isinstance(out, torch.Tensor) and not out.requires_grad
    torch.testing.assert_close(out, (2 * x * w).detach())


def test_what_the_schema_cannot_hold_is_refused(tmp_path: Path) -> None:
    assert "writes norm.running_mean" in refused(tmp_path, "flashinfer-trace", subjects.NORM_TASK, subjects.NORM)
    wide = subjects.SCALE_TASK.replace("torch.rand(5, 8)", "torch.rand(5, 8, dtype=torch.float64)")
    library = "HIP = r''''''\n\ndef forward(self, x):\n    return x * self.a * self.w\n"
    assert "x is float64, which" in refused(tmp_path, "flashinfer-trace", wide, library)


@pytest.mark.exhaustive
def test_the_benchmarks_own_reading(tmp_path: Path) -> None:
    """flashinfer-bench of the package index loads the folder as a data set, and its builder builds the solution."""
    folders = []
    for name, task, program in (("one", subjects.SCALE_TASK, subjects.SCALE), ("two", GROUPS_TASK, GROUPS)):
        (tmp_path / name).mkdir()
        folders.append(str(exported(tmp_path / name, "flashinfer-trace", task, program)))
    code = f"""
import os
os.environ["FIB_CACHE_PATH"] = {str(tmp_path / "cache")!r}
from flashinfer_bench.data import TraceSet
from flashinfer_bench.compile.builders.python_builder import PythonBuilder
for folder in {folders!r}:
    data = TraceSet.from_path(folder)
    (definition,), ((solution,),) = data.definitions.values(), data.solutions.values()
    assert sum(map(len, data.workloads.values())) in (1, 2)
    for trace in data.workloads[definition.name]:
        definition.get_input_shapes(trace.workload.axes)
        definition.get_output_shapes(trace.workload.axes)
    runnable = PythonBuilder().build(definition, solution)
    assert runnable.metadata.misc["entry_symbol"] == "run"
"""
    checkers.run(checkers.installed(*checkers.FLASHINFER, dependencies=False), code)
