"""Wrong programs: each is refused at its line (marked `# <-`) with a message that says what to do.

"parse" mistakes are found without torch; "lower" ones need the model's state or the operators' schemas; "run" ones need
values. A program without HIP gets the one of support.py.
"""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

import pytest
import torch

from hipwright.errors import CandidateError, GuardFailed, ProgramError
from hipwright.program import parse

from .golden_case import Stack
from .support import HIP, plan_of


class Bad(NamedTuple):
    message: str
    text: str


def plan(body: str, args: str = "x") -> str:
    """forward around the body."""
    return f"def forward(self, {args}):\n" + "".join(f"    {line}\n" for line in body.strip("\n").split("\n"))


TOP = [
    Bad(
        "only forward, prepare and backward may be defined, not helper",
        "def helper(x):  # <-\n    return x\n" + plan("return x"),
    ),
    Bad("a class is not allowed at the top level", "class A:  # <-\n    pass\n" + plan("return x")),
    Bad("`import os` is not allowed", "import os  # <-\n" + plan("return x")),
    Bad("`from torch import nn` is not allowed", "from torch import nn  # <-\n" + plan("return x")),
    Bad("an expression is not allowed at the top level", "K = 1\nprint(1)  # <-\n" + plan("return x")),
    Bad("forward is defined twice", plan("return x") + "def forward(self, x):  # <-\n    return x\n"),
    Bad("HIP is written twice", "HIP = r'''a'''  # <-\n" + plan("return x")),
    Bad("names at the top level start with a capital letter", "block = 3  # <-\n" + plan("return x")),
    Bad("the default 3 is not among the choices", "K = knob(3, choices=[1, 2])  # <-\n" + plan("return x")),
    Bad("a knob is written knob(default, choices=[...])", "K = knob(3)  # <-\n" + plan("return x")),
    Bad("choices must differ", "K = knob(1, choices=[1, 1])  # <-\n" + plan("return x")),
    Bad("all integers or all booleans", "K = knob(True, choices=[True, 1])  # <-\n" + plan("return x")),
    Bad("K is defined twice", "K = 1\nK = 2  # <-\n" + plan("return x")),
    Bad("must be from 0 to 63", "K = 10 ** 10 ** 10  # <-\n" + plan("return x")),
    Bad("does not fit in 64 bits", "K = 2 ** 62 * 4  # <-\n" + plan("return x")),
    Bad("division by zero", "K = 2 // 0  # <-\n" + plan("return x")),
    Bad("use // for division", "K = 4 / 2  # <-\n" + plan("return x")),
    Bad("unknown name LATER", "K = LATER + 1  # <-\nLATER = 1\n" + plan("return x")),
    Bad("only integers, names above", "K = 'text'  # <-\n" + plan("return x")),
    Bad("decorators are not allowed", "@torch.compile  # <-\n" + plan("return x")),
    Bad("the first parameter is self", "def forward(x):  # <-\n    return x\n"),
    Bad("write plain parameters", "def forward(self, *xs):  # <-\n    return xs\n"),
    Bad("prepare takes self only", plan("return x") + "def prepare(self, x):  # <-\n    return {'w': x}\n"),
    Bad("prepare returns a dict of names", plan("return x") + "def prepare(self):\n    return self.w  # <-\n"),
    Bad("write def backward(self, grads, saved)", plan("return x, x") + "def backward(self, g):  # <-\n    return g\n"),
    Bad("returns two things from forward", plan("return x  # <-") + "def backward(self, g, s):\n    return g\n"),
    Bad("syntax error", "def forward(self, x:  # <-\n    return x\n"),
]

STATEMENTS = [
    Bad("unknown name z", plan("y = x\nreturn y + z  # <-")),
    Bad("unknown name weigth; did you mean weight?", plan("weight = x + 1\nreturn weigth  # <-")),
    Bad("y is used before it is assigned", plan("a = y  # <-\ny = x\nreturn a")),
    Bad("forward may end without a return", "def forward(self, x):  # <-\n    if x.shape[0] > 1:\n        return x\n"),
    Bad("this can never run", plan("return x\ny = x  # <-")),
    Bad("return needs a value", plan("return  # <-")),
    Bad("self is read only", plan("self.cache = x  # <-\nreturn x")),
    Bad("self is read only", plan("self.cache[0] = x  # <-\nreturn x")),
    Bad("not written in place", plan("x[0] = 1  # <-\nreturn x")),
    Bad("not written in place", plan("y = x + 1\ny[:, 1] += 2  # <-\nreturn y")),
    Bad("while is not allowed", plan("while x.shape[0] > 1:  # <-\n    x = x[1:]\nreturn x")),
    Bad("break is not allowed", plan("for i in range(3):\n    break  # <-\nreturn x")),
    Bad("continue is not allowed", plan("for i in range(3):\n    continue  # <-\nreturn x")),
    Bad("for ... else is not allowed", plan("for i in range(3):\n    x = x + i\nelse:\n    x = x  # <-\nreturn x")),
    Bad("not over a tensor", plan("y = torch.zeros(4)\nfor v in y:  # <-\n    x = x + v\nreturn x")),
    Bad("not over a number", plan("for v in 4:  # <-\n    x = x + v\nreturn x")),
    Bad("with is not allowed", plan("with torch.no_grad():  # <-\n    y = x\nreturn y")),
    Bad("try is not allowed", plan("try:  # <-\n    y = x\nexcept Exception:\n    y = x\nreturn y")),
    Bad("raise is not allowed", plan("raise ValueError  # <-\nreturn x")),
    Bad("functions cannot be defined inside", plan("def f(a):  # <-\n    return a\nreturn x")),
    Bad("imports belong to the top", plan("import os  # <-\nreturn x")),
    Bad("global is not allowed", plan("global y  # <-\nreturn x")),
    Bad("del is not allowed", plan("y = x\ndel y  # <-\nreturn x")),
    Bad("this has no effect", plan("x + 1  # <-\nreturn x")),
    Bad("an assert's message is one plain string", plan("assert x.ndim == 2, f'{x}'  # <-\nreturn x")),
    Bad("BLOCK is a knob or constant", plan("BLOCK = 3  # <-\nreturn x")),
    Bad("torch is part of the plan language", plan("torch = x  # <-\nreturn x")),
    Bad("add is a kernel; choose another name", plan("add = x  # <-\nreturn x")),
    Bad("two leading underscores", plan("__hw_host = x  # <-\nreturn x")),
]

EXPRESSIONS = [
    Bad("lambda is not allowed", plan("f = lambda a: a  # <-\nreturn x")),
    Bad("a generator is not allowed", plan("y = sum(a for a in x.shape)  # <-\nreturn x")),
    Bad("one for and no if", plan("y = [a for a in x.shape if a > 1]  # <-\nreturn x")),
    Bad("a dict is allowed only after return", plan("y = {'a': 1}  # <-\nreturn x")),
    Bad(":= is not allowed", plan("y = (n := 3)  # <-\nreturn x")),
    Bad("f-strings are not allowed", plan("y = f'{x}'  # <-\nreturn x")),
    Bad("yield is not allowed", plan("y = yield x  # <-\nreturn x")),
    Bad("self is not a value", plan("y = self  # <-\nreturn x")),
    Bad("torch is not a value", plan("y = torch  # <-\nreturn x")),
    Bad("min is not a value", plan("y = min  # <-\nreturn x")),
    Bad(".__class__ is not readable", plan("y = x.__class__  # <-\nreturn x")),
    Bad("two leading underscores are not allowed", plan("y = self.__dict__  # <-\nreturn x")),
    Bad(".data is not readable in a plan: a plan has no autograd", plan("y = x.data  # <-\nreturn x")),
    Bad("did you mean shape?", plan("y = x.shap  # <-\nreturn x")),
    Bad(
        "torch.float31 is not a value in a plan; did you mean float32?", plan("y = x.to(torch.float31)  # <-\nreturn y")
    ),
    Bad("there is no prepare(self)", plan("return self.prepared.w  # <-")),
    Bad(
        "prepare returns no v", plan("return self.prepared.v  # <-") + "def prepare(self):\n    return {'w': self.w}\n"
    ),
    Bad("bytes literal", plan("y = b'a'  # <-\nreturn x")),
]

CALLS = [
    Bad("print is not a function of the plan language", plan("y = print(x)  # <-\nreturn x")),
    Bad("__import__ is not a function", plan("y = __import__('os')  # <-\nreturn x")),
    Bad("cdvi is not a function of the plan language; did you mean cdiv?", plan("y = cdvi(1, 2)  # <-\nreturn x")),
    Bad("recursion and helper functions are not allowed", plan("y = forward(x)  # <-\nreturn y")),
    Bad("self.conv(...) is not callable in a plan", plan("return self.conv(x)  # <-")),
    Bad("is not callable in a plan", plan("for layer in self.layers:\n    x = layer(x)  # <-\nreturn x")),
    Bad("is not callable in a plan", plan("return self.layers[0](x)  # <-")),
    Bad("torch.save is refused: a plan touches no files", plan("y = torch.save(x, 'f')  # <-\nreturn x")),
    Bad("torch.manual_seed is refused", plan("y = torch.manual_seed(0)  # <-\nreturn x")),
    Bad(
        "torch.set_default_dtype is refused: a plan does not touch global flags",
        plan("y = torch.set_default_dtype(torch.half)  # <-\nreturn x"),
    ),
    Bad(
        "torch.distributed.barrier is not part of the plan language",
        plan("y = torch.distributed.barrier()  # <-\nreturn x"),
    ),
    Bad("torch.relu_ works in place; use torch.relu", plan("y = torch.relu_(x)  # <-\nreturn y")),
    Bad(".add_() works in place: use .add()", plan("y = x.add_(1)  # <-\nreturn y")),
    Bad(".zero_() works in place", plan("y = x + 1\ny.zero_()  # <-\nreturn y")),
    Bad("out= writes in place", plan("y = torch.add(x, x, out=x)  # <-\nreturn y")),
    Bad("inplace= is not allowed", plan("y = F.relu(x, inplace=True)  # <-\nreturn y")),
    Bad("generator= is random state", plan("y = torch.bernoulli(x, generator=None)  # <-\nreturn y")),
    Bad("leave device out", plan("y = torch.zeros(3, device='cuda')  # <-\nreturn y")),
    Bad(".to() takes a dtype", plan("y = x.to('cuda')  # <-\nreturn y")),
    Bad(".item() is refused", plan("y = x.item()  # <-\nreturn x")),
    Bad(".cpu() is refused", plan("y = x.cpu()  # <-\nreturn y")),
    Bad(".data_ptr() is refused: pass the tensor itself", plan("y = x.data_ptr()  # <-\nreturn x")),
    Bad("** is not allowed in a call", plan("y = F.gelu(x, **x)  # <-\nreturn x")),
    Bad(
        "max works on host numbers, not tensors; use torch.maximum", plan("y = max(torch.zeros(3), 0)  # <-\nreturn y")
    ),
    Bad("math.sqrt works on host numbers; use torch.sqrt", plan("y = math.sqrt(torch.zeros(1))  # <-\nreturn y")),
    Bad("math.sqtr is not available; did you mean sqrt?", plan("y = math.sqtr(3)  # <-\nreturn x")),
    Bad("is private", plan("y = x._version()  # <-\nreturn x")),
]

LAUNCHES = [
    Bad("launch it with a grid and a block", plan("add(x, x, x, 1)  # <-\nreturn x")),
    Bad("a launch has no value", plan("y = add[1, 64](x, x, x, 1)  # <-\nreturn x")),
    Bad("a launch needs its arguments", plan("y = add[1, 64]  # <-\nreturn x")),
    Bad("a launch needs a grid and a block", plan("add[64](x, x, x, 1)  # <-\nreturn x")),
    Bad("a launch needs a grid and a block", plan("add[1, 64, 0, 0](x, x, x, 1)  # <-\nreturn x")),
    Bad("HIP has no kernel ad; did you mean add?", plan("ad[1, 64](x, x, x, 1)  # <-\nreturn x")),
    Bad('mangled cannot be launched: it is not extern "C"', plan("mangled[1, 64](x)  # <-\nreturn x")),
    Bad("generic cannot be launched: it is a template", plan("generic[1, 64](x)  # <-\nreturn x")),
    Bad(
        "add takes 4 arguments (float* x, float* y, float* out, long n), not 3",
        plan("add[1, 64](x, x, x)  # <-\nreturn x"),
    ),
    Bad(
        "out is float*, so it takes a tensor, not a number",
        plan("add[1, 64](\n    x, x,\n    x.numel(),  # <-\n    x)\nreturn x"),
    ),
    Bad(
        "n is long, so it takes a number, not a tensor",
        plan("y = torch.empty_like(x)\nadd[1, 64](x, x, x, y)  # <-\nreturn x"),
    ),
    Bad("n is long, so it takes a number, not a None", plan("add[1, 64](x, x, x, None)  # <-\nreturn x")),
    Bad("n is long, so it takes a number, not a shape", plan("add[1, 64](x, x, x, x.shape)  # <-\nreturn x")),
    Bad("the arguments of add are given by position", plan("add[1, 64](x, x, x, n=1)  # <-\nreturn x")),
    Bad("a block has one to three dimensions", plan("add[1, (1, 1, 1, 1)](x, x, x, 1)  # <-\nreturn x")),
    Bad("a grid's dimensions are positive integers", plan("add[0, 64](x, x, x, 1)  # <-\nreturn x")),
    Bad("a grid's dimensions are integers, not a tensor", plan("add[torch.zeros(1), 64](x, x, x, 1)  # <-\nreturn x")),
    Bad("add is a kernel; launch it as a statement", plan("y = (add, x)  # <-\nreturn x")),
]

LOWERED = [
    Bad("the task's Model has no layrs; did you mean layers?", plan("return self.layrs[0].weight  # <-")),
    Bad("self.layers.0 has no wieght; did you mean weight?", plan("return self.layers[0].wieght  # <-")),
    Bad("self.layers has 3 items", plan("return self.layers[3].weight  # <-")),
    Bad("self.layers.0 is a module (Linear), not a value", plan("y = (x, self.layers[0])  # <-\nreturn y")),
    Bad(
        "the index of a module list must be known",
        plan("for i in range(x.shape[0]):\n    x = x + self.layers[i].weight  # <-\nreturn x"),
    ),
    Bad("self.layers.0 is not a module list", plan("for p in self.layers[0]:  # <-\n    x = x\nreturn x")),
    Bad("unknown operator torch.gleu", plan("return torch.gleu(x)  # <-")),
    Bad("unknown operator torch.nn.functional.gleu; did you mean glu?", plan("return F.gleu(x)  # <-")),
    Bad("unknown operator torch.gelu; did you mean torch.nn.functional.gelu?", plan("return torch.gelu(x)  # <-")),
    Bad("unknown method .trnspose()", plan("return x.trnspose(0, 1)  # <-")),
    Bad("is not a functional ATen operator", plan("return torch.equal(x, x)  # <-")),
    Bad("is not a functional ATen operator", plan("return F.triplet_margin_with_distance_loss(x, x, x)  # <-")),
    Bad("is not functional", plan("return torch.ops.aten.split_with_sizes_copy.out(x, [4])  # <-")),
    Bad("its overloads are", plan("return torch.ops.aten.add.Nothing(x, x)  # <-")),
    Bad("is private", plan("return torch.ops.aten._cufft_clear_plan_cache(0)  # <-")),
    Bad("draws random numbers", plan("return torch.rand(3)  # <-")),
    Bad("draws random numbers", plan("return torch.bernoulli(x)  # <-")),
    Bad("only buffers and inputs are updated", plan("self.layers[0].weight.copy_(x)  # <-\nreturn x")),
    Bad("n is long, but self.mean is a buffer", plan("add[1, 64](x, x, x, self.mean)  # <-\nreturn x")),
    Bad("2 names are unpacked from 1 values", plan("a, b = (self.eps,)  # <-\nreturn x")),
    Bad("modulo by zero", plan("n = 3 // (len(self.layers) - 3)  # <-\nreturn x")),
    Bad("is a tensor and has no truth value", plan("if self.mean:  # <-\n    return x\nreturn x + 1")),
]

RUN = [
    Bad("a tensor's value is wanted on the host", plan("if x.sum() > 0:  # <-\n    return x\nreturn x + 1")),
    Bad("a tensor's value is wanted on the host", plan("y = x.sum() > 0 and x  # <-\nreturn y")),
    Bad("a tensor's value is wanted on the host", plan("n = int(x[0, 0])  # <-\nreturn x * n")),
    Bad("a tensor's value is wanted on the host", plan("i = x.argmax()\nreturn x.shape[i]  # <-")),
    Bad("a tensor's value is wanted on the host", plan("i = x.argmax()\nreturn x[i:]  # <-")),
    Bad("a tensor's value is wanted on the host", plan("for i in range(x.argmax()):  # <-\n    x = x + i\nreturn x")),
    Bad("a tensor's value is wanted on the host", plan("y = 0 < x < 1  # <-\nreturn y")),
    Bad(
        "x is float*, so it takes a float32 tensor, not a float16 tensor of shape (4, 6)",
        plan("y = x.half()\nrelu[1, 64](y, y, 1)  # <-\nreturn y"),
    ),
    Bad(
        "n is long, so it takes an integer, not float 2.0; write int(...)",
        plan("n = x.shape[0] / 2\nrelu[1, 64](x, x, n)  # <-\nreturn x"),
    ),
    Bad(
        "n = 10000000000 does not fit in int",
        plan("n = x.shape[0] * 2500000000\nscale[1, 64](x, x, 1.0, n)  # <-\nreturn x"),
    ),
    Bad("the grid is one to three integers", plan("g = x.shape[0] / 2\nrelu[g, 64](x, x, 1)  # <-\nreturn x")),
    Bad("RuntimeError", plan("return x @ x  # <-")),
    Bad("would draw random numbers", plan("return F.dropout(x)  # <-")),
    Bad("would draw random numbers", plan("return F.scaled_dot_product_attention(x, x, x, None, 0.5)  # <-")),
    Bad("inplace=True writes in place", plan("return F.relu(x, True)  # <-")),
    Bad("max_norm=1.0 writes in place", plan("i = x.argmax(dim=1)\nreturn F.embedding(i, x, None, 1.0)  # <-")),
    Bad("ZeroDivisionError", plan("return x * (1 // (x.shape[0] - 4))  # <-")),
]


def expect(bad: Bad, error: ProgramError | CandidateError) -> None:
    text = bad.text if "HIP =" in bad.text and "twice" not in bad.message else HIP + bad.text
    line = next(i for i, row in enumerate(text.split("\n"), 1) if "# <-" in row)
    assert bad.message in str(error)
    assert str(error).startswith(f"line {line}: ")
    assert error.evidence["line"] == line


def ids(bads: list[Bad]) -> list[str]:
    return [bad.message for bad in bads]


PARSED = TOP + STATEMENTS + EXPRESSIONS + CALLS + LAUNCHES


@pytest.mark.parametrize("bad", PARSED, ids=ids(PARSED))
def test_the_parser_names_the_line(bad: Bad) -> None:
    with pytest.raises(ProgramError) as caught:
        parse(HIP + bad.text)
    expect(bad, caught.value)
    assert caught.value.status == "parse_error" and caught.value.fault == "candidate"


@pytest.mark.parametrize("bad", LOWERED, ids=ids(LOWERED))
def test_lowering_names_the_line(bad: Bad) -> None:
    with pytest.raises(ProgramError) as caught:
        plan_of(bad.text, Stack())
    expect(bad, caught.value)


@pytest.mark.parametrize("bad", RUN, ids=ids(RUN))
def test_running_names_the_line(bad: Bad) -> None:
    lowered, _ = plan_of(bad.text, Stack())
    with pytest.raises(CandidateError) as caught:
        lowered.forward(torch.rand(4, 6))
    expect(bad, caught.value)
    assert caught.value.status == "launch_error"


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("def forward(self, x):\n    return x\n", "no HIP source", 0),
        ("HIP = r'''\n'''\n", "no plan", 0),
        ("HIP = 3\n", "line 1: HIP is one string literal", 1),
        ("\nHIP = 'a\\nb'\n", "line 2: write HIP as one raw triple-quoted literal", 2),
        ("HIP = r'''a''' r'''b'''\n", "line 1: write HIP as one raw", 1),
        (
            "HIP = r'''\nextern \"C\" __global__ void k(struct S s) {}\n'''\n" + plan("return x"),
            "line 2: kernel k, parameter 1",
            2,
        ),
        (
            "HIP = r'''\n\nextern \"C\" __global__ void k(int a,\n  float& b) {}\n'''\n" + plan("return x"),
            "line 4: kernel k, parameter 2",
            4,
        ),
        (
            "HIP = r'''\nextern \"C\" __global__ void A(int a) {}\n'''\nA = 3\n" + plan("return x"),
            "line 2: A is both a kernel",
            2,
        ),
        ("x\0y", "null bytes", 0),
        ("HIP = r'''\n'''\n" + plan("return x" + " + x" * 20000), "nested too deeply", 0),
    ],
)
def test_files_that_are_no_programs(text: str, message: str, line: int) -> None:
    with pytest.raises(ProgramError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert caught.value.line == line


def test_a_guard_that_fails_says_why() -> None:
    text = plan('assert x.shape[0] == 2 * 3, "needs six rows"\nreturn x')
    lowered, _ = plan_of(text)
    with pytest.raises(GuardFailed, match="needs six rows") as caught:
        lowered.forward(torch.zeros(4))
    assert caught.value.line == (HIP + text).split("\n").index('    assert x.shape[0] == 2 * 3, "needs six rows"') + 1
    assert lowered.forward(torch.zeros(6)).shape == (6,)


def test_a_guard_on_knobs_fails_when_run_not_when_lowered() -> None:
    lowered, _ = plan_of(plan("assert BLOCK < 256\nreturn x"))
    with pytest.raises(GuardFailed, match="BLOCK < 256"):
        lowered.forward(torch.zeros(6))
    assert plan_of(plan("assert BLOCK < 256\nreturn x"), knobs={"BLOCK": 64})[0].forward(torch.zeros(6)).shape == (6,)


def test_wrong_number_of_inputs() -> None:
    lowered, _ = plan_of(plan("return x", "x, y"))
    with pytest.raises(CandidateError, match=r"forward takes 2 inputs \(x, y\), but the task gives 1"):
        lowered.forward(torch.zeros(1))


def test_there_are_enough_bad_programs() -> None:
    assert len(PARSED) + len(LOWERED) + len(RUN) >= 40


def test_the_parser_imports_no_torch() -> None:
    code = "import sys, hipwright.program, hipwright.program.parse; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
