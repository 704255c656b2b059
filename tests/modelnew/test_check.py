# ruff: noqa: E501 - samples stand on a line each
"""Static rules: every hostile sample is refused by its own rule, no honest one is, odd ones are warned of."""

from __future__ import annotations

import pytest

from hipwright.audit.cases import select
from hipwright.errors import CandidateError, ProgramError
from hipwright.program import parse
from hipwright.program.modelnew.check import check, form_of, vet
from hipwright.program.modelnew.export import export
from hipwright.records import Program
from tests.modelnew.samples import PAIRS, candidate

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
CLASS = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x\n"


def forward(body: str) -> str:
    lines = "".join(f"        {line}\n" for line in body.split("\n"))
    return f"{HEAD}class ModelNew(nn.Module):\n    def forward(self, x):\n{lines}"


def top(code: str) -> str:
    return f"{HEAD}{code}\n{CLASS}"


def native(code: str) -> str:
    return top(f"source = '''\n#include <torch/extension.h>\n{code}\n'''")


HOSTILE = {
    "fallback to torch": ("B3", forward("try:\n    return ext.f(x)\nexcept Exception:\n    return torch.relu(x)")),
    "fallback to a method": (
        "B3",
        forward("try:\n    y = ext.f(x)\nexcept RuntimeError:\n    y = self.ref(x)\nreturn y"),
    ),
    "fallback, bare": ("B3", forward("try:\n    y = ext.f(x)\nexcept:\n    y = F.relu(x)\nreturn y")),
    "fallback by product": ("B3", forward("try:\n    y = ext.f(x)\nexcept Exception:\n    y = x @ x\nreturn y")),
    "fallback in a helper": (
        "B3",
        top("def go(x):\n    try:\n        return ext.f(x)\n    except Exception:\n        return x.relu()"),
    ),
    "imports Model": ("B4", top("from reference import Model")),
    "relative import": ("B4", top("from . import reference")),
    "subclasses Model": ("B4", f"{HEAD}class ModelNew(Model):\n    pass\n"),
    "compile": ("B5", forward("return torch.compile(torch.relu)(x)")),
    "compile as decorator": ("B5", top("@torch.compile\ndef f(x):\n    return x")),
    "compile by alias": ("B5", top("from torch import compile as c\nf = c(torch.relu)")),
    "dynamo": ("B5", top("import torch._dynamo")),
    "tf32": ("B7", top("torch.backends.cuda.matmul.allow_tf32 = True")),
    "matmul precision": ("B7", top("torch.set_float32_matmul_precision('high')")),
    "patched event": ("D5", top("torch.cuda.Event = None")),
    "patched synchronize": ("D5", forward("torch.cuda.synchronize = lambda *a: None\nreturn x")),
    "patched time": ("D5", top("import time\ntime.perf_counter = lambda: 0")),
    "patched allclose": ("D5", top("setattr(torch, 'allclose', lambda *a, **k: True)")),
    "patched tensor": ("D5", top("torch.Tensor.__eq__ = lambda a, b: True")),
    "patched module list": ("E1", top("import sys\nsys.modules['torch'] = None")),
    "deleted": ("D5", top("del torch.cuda.synchronize")),
    "lazy tensor": ("D3", top("class Lazy(torch.Tensor):\n    pass")),
    "lazy by protocol": ("D3", top("class Lazy:\n    def __torch_function__(self, *a):\n        pass")),
    "dispatch mode": ("D3", top("from torch.utils._python_dispatch import TorchDispatchMode")),
    "threads": ("D2", top("import threading")),
    "processes": ("D2", top("from concurrent.futures import ThreadPoolExecutor")),
    "shell": ("D2", top("import os\nos.system('true')")),
    "subprocess": ("D2", top("import subprocess as s")),
    "network": ("E5", top("import urllib.request")),
    "reads a file": ("E7", forward("return open('/work/task.py').read()")),
    "loads tensors": ("E7", forward("return torch.load('expected.pt')")),
    "lists files": ("E7", top("import os\nfiles = os.listdir('.')")),
    "numpy file": ("E7", top("import numpy as np\nx = np.load('a.npy')")),
    "environment": ("E4", top("import os\nseed = os.environ['TASK_SEED']")),
    "environment by get": ("E4", top("import os\nseed = os.environ.get('TASK_SEED')")),
    "stack": ("E1", forward("import sys\nf = sys._getframe(1)\nreturn x")),
    "stack by inspect": ("E1", forward("import inspect\nreturn inspect.stack()[1]")),
    "frame attributes": ("E1", forward("return x if x is None else e.__traceback__.tb_frame")),
    "closures": ("E1", forward("return self.forward.__globals__")),
    "objects": ("E1", top("import gc")),
    "subclasses": ("E1", forward("return object.__subclasses__()")),
    "ctypes": ("E2", top("import ctypes")),
    "exec": ("E3", top("exec('x = 1')")),
    "dynamic import": ("E3", top("m = __import__('os')")),
    "importlib": ("E3", top("import importlib\nm = importlib.import_module('os')")),
    "the evaluator": ("E3", top("import hipwright")),
    "native shell": ("D2", native('void f() { system("true"); }')),
    "native thread": ("D2", native("#include <thread>\nvoid f() { std::thread t([] {}); }")),
    "native getenv": ("E4", native('const char *f() { return getenv("X"); }')),
    "native file": ("E7", native('void f() { std::ifstream in("/tmp/x"); }')),
    "native include": ("E7", native('#include "/etc/passwd"')),
    "native relative include": ("E7", native('#include "../../secret.h"')),
    "native proc": ("E7", native('const char *p = "/proc/self/maps";')),
    "native dlsym": ("D4", native('void f() { dlsym(0, "cudaEventRecord"); }')),
    "native constructor": ("D4", native("__attribute__((constructor)) void f() {}")),
    "native python": ("E1", native('void f() { py::exec("import os"); }')),
    "native flags": ("B7", native("void f() { at::globalContext().setAllowTF32CuBLAS(true); }")),
}

HONEST = {
    "try around an import": top("try:\n    import triton\nexcept ImportError:\n    triton = None"),
    "try around a build": top(
        "try:\n    ext = load_inline('x', 'y')\nexcept Exception as e:\n    raise RuntimeError('no build') from e"
    ),
    "try for a stream": forward(
        "try:\n    s = torch.cuda.current_stream().cuda_stream\nexcept Exception:\n    s = 0\nreturn x"
    ),
    "error with a reason": forward(
        "try:\n    return ext.f(x)\nexcept RuntimeError as e:\n    raise ValueError(str(x.shape)) from e"
    ),
    "architectures": top(
        "import os\nos.environ['TORCH_CUDA_ARCH_LIST'] = '9.0'\nhome = os.environ.get('CUDA_HOME', '')"
    ),
    "its own attributes": forward("self.calls = 1\nself.cfg.block = 256\nreturn x"),
    "class attribute": top("class Config:\n    block = 1\nConfig.block = 2"),
    "functional": forward("return F.softmax(torch.matmul(x, x.t()), dim=-1)"),
    "own function named compile": top("def compile(x):\n    return x\ny = compile(1)"),
    "own function named input": top("def input(x):\n    return x\ny = input(1)"),
    "inspect signature": top("import inspect\np = inspect.signature(print).parameters"),
    "dtype attribute": forward("y = x\ny.requires_grad = False\nreturn y"),
    "autograd function": top(
        "class F2(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.n = 1\n        return x"
    ),
    "a copy of the reference": top("class Model(nn.Module):\n    def forward(self, x):\n        return x"),
    "comments that name tricks": native('// system("rm") std::thread getenv(\nvoid f() {}'),
    "math names": native("__global__ void k(float *x) { x[0] = __expf(x[0]); }\n// exec"),
    "no grad": forward("with torch.no_grad():\n    return x + 1"),
    "lru_cache": top("import functools\n@functools.lru_cache(None)\ndef build():\n    return 1"),
    "global": top("_ext = None\ndef get():\n    global _ext\n    if _ext is None:\n        _ext = 1\n    return _ext"),
    "type hints": top("from typing import Optional, List\nfrom dataclasses import dataclass\nimport math"),
}

WARNED = {
    "stream": ("D1", forward("s = torch.cuda.Stream()\nreturn x")),
    "graph": ("C2", forward("g = torch.cuda.CUDAGraph()\nreturn x")),
    "script": ("B5", top("@torch.jit.script\ndef f(x):\n    return x\ny = torch.jit.trace(f, 1)")),
    "seed": ("A5", top("torch.manual_seed(0)")),
    "clock": ("D5", top("import time\nt = time.time()")),
    "a copy of Model as base": ("B1", f"{HEAD}class Model(nn.Module):\n    pass\nclass ModelNew(Model):\n    pass\n"),
    "fallback flag": ("B3", top("try:\n    ext = build()\nexcept Exception:\n    ext = None")),
    "writes a source": ("E7", top("f = open('/tmp/k.cu', 'w')")),
    "native stream": ("D1", native("void f(cudaStream_t *s) { cudaStreamCreate(s); }")),
    "cublas": ("B1", native("void f() { cublasSgemm(0); }")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_with_rule_and_line(name: str) -> None:
    rule, text = HOSTILE[name]
    refused = [f for f in check(text) if f.refused]
    assert rule in {f.rule for f in refused}, refused
    assert all(1 <= f.line <= text.count("\n") + 1 for f in refused)
    with pytest.raises(CandidateError) as raised:
        vet(text)
    verdict = raised.value.verdict()
    assert (verdict.status, verdict.fault, verdict.stage) == ("hack", "candidate", "lint")
    assert verdict.evidence["rule"] and verdict.evidence["line"]


@pytest.mark.parametrize("name", HONEST)
def test_honest_files_pass(name: str) -> None:
    assert not [f for f in check(HONEST[name]) if f.refused]


@pytest.mark.parametrize("name", WARNED)
def test_odd_files_are_warned_of(name: str) -> None:
    rule, text = WARNED[name]
    assert not [f for f in check(text) if f.refused]
    assert any(f"({rule})" in said for said in vet(text))


@pytest.mark.parametrize("name", PAIRS)
def test_candidates_have_no_findings(name: str) -> None:
    assert check(candidate(name)) == ()


def test_our_exports_have_no_findings() -> None:
    for case in select(form="program", kind="honest"):
        exported = export(Program(text=case.text), parse(case.text), case.task_path.read_text())
        assert check(exported) == () and form_of(exported) == "modelnew" and form_of(case.text) == "program"


def test_the_lane_is_told_by_content() -> None:
    assert form_of(top("")) == "modelnew"
    assert form_of("x = 'class ModelNew'") == "program"
    assert form_of("class ModelNew(nn.Module:\n") == "modelnew", "a syntax error is still that form"
    assert form_of("\x00") == "program"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("class ModelNew(:", "syntax error"),
        ("x = 1", "no class ModelNew"),
        ("class ModelNew: pass\n" + "#" * 2_000_001, "limit"),
    ],
)
def test_what_is_no_candidate(text: str, why: str) -> None:
    with pytest.raises(ProgramError, match=why):
        vet(text)
