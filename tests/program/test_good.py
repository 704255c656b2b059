"""Golden programs: lowered and run with kernels that are Python functions, compared with what torch computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from .support import plan_of


class Good(NamedTuple):
    name: str
    text: str
    inputs: Callable[[], tuple[Any, ...]]
    expected: Callable[..., Any]
    model: Callable[[], nn.Module] | None = None
    knobs: dict[str, int] | None = None


def x44() -> tuple[Any, ...]:
    return (torch.randn(4, 6),)


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6, bias=False), nn.Linear(6, 3)])
        self.scales = nn.ParameterList([nn.Parameter(torch.randn(3)) for _ in range(2)])
        self.register_buffer("mean", torch.randn(3))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.sizes = [6, 3]
        self.eps = 1e-5
        self.name = "stack"


def stack_expected(model: Stack, x: torch.Tensor) -> torch.Tensor:
    for layer in model.layers:
        x = F.relu(F.linear(x, layer.weight, layer.bias))
    return x


GOOD = [
    Good(
        "launch",
        """
def forward(self, x, y):
    out = torch.empty_like(x)
    add[cdiv(x.numel(), BLOCK), BLOCK](x, y, out, x.numel())
    return out
""",
        lambda: (torch.randn(5, 7), torch.randn(5, 7)),
        lambda m, x, y: x + y,
    ),
    Good(
        "grid of three dimensions, LDS, knobs and constants",
        """
def forward(self, x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    scale[(1, 2, 3), (BLOCK // 2, 2), 4 * TILE](x, out, 2.0 if FAST else 3.0, x.numel())
    return out
""",
        x44,
        lambda m, x: 3 * x,
        knobs={"FAST": 0},
    ),
    Good(
        "two outputs",
        """
def forward(self, x):
    a, b = x.chunk(2, dim=1)
    return a.contiguous(), (b + 1, [a, b])
""",
        x44,
        lambda m, x: (x[:, :3], (x[:, 3:] + 1, [x[:, :3], x[:, 3:]])),
    ),
    Good(
        "views are indexed",
        """
def forward(self, x):
    n = x.shape[-1]
    return x[:, 1:], x[..., None], x[0, -2:], x[:, :n // 2], x[1:3, None, ::2], x[:, n - 1]
""",
        x44,
        lambda m, x: (x[:, 1:], x[..., None], x[0, -2:], x[:, :3], x[1:3, None, ::2], x[:, 5]),
    ),
    Good(
        "if on shapes and dtypes",
        """
def forward(self, x):
    if x.shape[0] > 2 and x.dtype == torch.float32:
        y = x * 2
    elif x.ndim == 2:
        y = x * 3
    else:
        y = x * 4
    return y
""",
        x44,
        lambda m, x: 2 * x,
    ),
    Good(
        "early return",
        """
def forward(self, x):
    if x.size(0) == 4:
        return x + 1
    return x
""",
        x44,
        lambda m, x: x + 1,
    ),
    Good(
        "module list",
        """
def forward(self, x):
    for layer in self.layers:
        y = F.linear(x, layer.weight, layer.bias)
        x = torch.empty_like(y)
        relu[cdiv(y.numel(), BLOCK), BLOCK](y, x, y.numel())
    return x
""",
        x44,
        stack_expected,
        Stack,
    ),
    Good(
        "module list by index, and enumerate",
        """
def forward(self, x):
    for i in range(len(self.layers)):
        x = F.linear(x, self.layers[i].weight, self.layers[i].bias)
        if i < len(self.layers) - 1:
            x = F.relu(x)
    for i, layer in enumerate(self.layers):
        if i == len(self.layers) - 1:
            x = F.relu(x)
    last = self.layers[-1]
    assert last.out_features == x.shape[1]
    return x
""",
        x44,
        stack_expected,
        Stack,
    ),
    Good(
        "branches on what the model has are decided when lowered",
        """
def forward(self, x):
    layer = self.layers[1]
    if layer.bias is not None:
        return F.linear(x, layer.weight, layer.bias) + self.layers[1].nothing
    if self.training and not self.name == "other":
        y = x @ layer.weight.t()
    return y
""",
        x44,
        lambda m, x: F.linear(x, m.layers[1].weight),
        Stack,
    ),
    Good(
        "attributes, parameter lists and zip",
        """
def forward(self, x):
    a, b = self.sizes
    y = torch.zeros(b)
    for w, k in zip(self.scales, (1, 2)):
        y = y + w * k
    return y + a + self.eps, self.scales[0].shape[0]
""",
        x44,
        lambda m, x: (m.scales[0] + 2 * m.scales[1] + 6 + 1e-5, 3),
        Stack,
    ),
    Good(
        "list comprehensions",
        """
def forward(self, x):
    y = torch.stack([s + i for i, s in enumerate(self.scales)])
    return y, torch.cat([x[i] for i in range(x.shape[0])])
""",
        x44,
        lambda m, x: (torch.stack([m.scales[0], m.scales[1] + 1]), x.reshape(-1)),
        Stack,
    ),
    Good(
        "a loop over host values stays a loop",
        """
def forward(self, x):
    total = 0
    for i in range(x.shape[0]):
        total += i * 2
        if i == 3:
            total = total + 100
    for n in x.shape:
        total += n
    return x * total
""",
        x44,
        lambda m, x: x * (12 + 100 + 10),
    ),
    Good(
        "a loop over pieces of a tensor",
        """
def forward(self, x):
    parts = ()
    for piece in x.split(2, dim=0):
        parts = (*parts, piece.sum(dim=0))
    return torch.stack(parts)
""",
        x44,
        lambda m, x: torch.stack([x[:2].sum(0), x[2:].sum(0)]),
    ),
    Good(
        "arithmetic on the host",
        """
def forward(self, x):
    n = x.numel()
    a = max(n // 5, 3) + min(2, 1) - cdiv(n, 7) * 2 ** 3 % 5
    b = next_pow2(n) + (1 << 4) | 1
    c = int(n / 5) + abs(-3) + round(2.6) + sum((1, 2)) + len(x.shape)
    d = math.sqrt(16.0) + math.pi - math.pi
    ok = not (n < 3) and (a > 0 or b > 0)
    return x * a, x * b, x * c, x * d, bool(ok), -n, 1 < n < 100
""",
        x44,
        lambda m, x: (x * (4 + 1 - 4 * 8 % 5), x * ((32 + 16) | 1), x * (4 + 3 + 3 + 3 + 2), x * 4.0, True, -24, True),
    ),
    Good(
        "library calls of every spelling",
        """
def forward(self, x):
    a = torch.nn.functional.gelu(x, approximate="tanh")
    b = F.layer_norm(x, x.shape[-1:])
    c = nn.functional.softmax(x, dim=-1)
    d = torch.ops.aten.relu(x) + torch.ops.aten.add.Tensor(x, x)
    e = x.transpose(0, 1).reshape(-1).float()
    f = torch.einsum("ij,kj->ik", x, x)
    g = torch.linalg.vector_norm(x)
    h = F.interpolate(x[None, None], scale_factor=2.0, mode="nearest")
    return a, b, c, d, e, f, g, h
""",
        x44,
        lambda m, x: (
            F.gelu(x, approximate="tanh"),
            F.layer_norm(x, (6,)),
            x.softmax(-1),
            x.relu() + 2 * x,
            x.t().reshape(-1),
            x @ x.t(),
            x.norm(),
            F.interpolate(x[None, None], scale_factor=2.0),
        ),
    ),
    Good(
        "results with fields",
        """
def forward(self, x):
    top = x.max(dim=1)
    values, indices = x.topk(2, dim=1)
    return top.values, top.indices, values, indices, x.mT, x.T
""",
        x44,
        lambda m, x: (*x.max(1), *x.topk(2, dim=1), x.mT, x.T),
    ),
    Good(
        "attention",
        """
def forward(self, x):
    q = x.view(1, 1, 4, 6)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True)
""",
        x44,
        lambda m, x: F.scaled_dot_product_attention(*[x.view(1, 1, 4, 6)] * 3, is_causal=True),
    ),
    Good(
        "dropout that is switched off",
        """
def forward(self, x):
    return F.dropout(x, 0.5, training=False) + F.dropout(x, p=0.0)
""",
        x44,
        lambda m, x: 2 * x,
    ),
    Good(
        "default arguments and keyword constants",
        """
def forward(self, x, k=2, flag=None):
    return x * k if flag is None else x
""",
        x44,
        lambda m, x: 2 * x,
    ),
    Good(
        "factories take the plan's device",
        """
def forward(self, x):
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    rows = torch.arange(4)[:, None]
    return torch.where(mask, x @ x.t(), torch.finfo(x.dtype).min), rows, torch.tensor([1, 2])
""",
        x44,
        lambda m, x: (
            torch.where(torch.ones(4, 4).tril() > 0, x @ x.t(), torch.finfo(torch.float32).min),
            torch.arange(4)[:, None],
            torch.tensor([1, 2]),
        ),
    ),
    Good(
        "guards that hold",
        """
def forward(self, x):
    assert x.shape[1] % 2 == 0, "the row length is even"
    assert x.is_contiguous() and x.dtype in (torch.float32, torch.float16)
    return x + 0
""",
        x44,
        lambda m, x: x,
    ),
    Good(
        "a null pointer",
        """
def forward(self, x):
    out = torch.empty_like(x)
    scale[1, 64](x, out, 1, x.numel())
    relu[1, 1](None, None, 0) if False else None
    return out
""".replace("    relu[1, 1](None, None, 0) if False else None\n", ""),
        x44,
        lambda m, x: x,
    ),
    Good(
        "augmented assignment makes a new tensor",
        """
def forward(self, x):
    y = x
    y += 1
    y *= 2
    return y, x
""",
        x44,
        lambda m, x: ((x + 1) * 2, x),
    ),
    Good(
        "boolean operators keep Python's meaning",
        """
def forward(self, x):
    n = x.shape[0] or 7
    k = (x.shape[1] > 100 and 3) or 5
    return x * n * k
""",
        x44,
        lambda m, x: x * 20,
    ),
    Good(
        "comments, docstring, imports and annotations",
        '''
import torch
import torch.nn as nn
import torch.nn.functional as F
import math

def forward(self, x: torch.Tensor) -> torch.Tensor:
    """The plan."""
    scale_of: float = 1 / math.sqrt(x.shape[-1])
    return x * scale_of  # done
''',
        x44,
        lambda m, x: x / 6**0.5,
    ),
    Good(
        "a dict of outputs",
        """
def forward(self, x):
    return {"double": x * 2, "pair": (x, x)}
""",
        x44,
        lambda m, x: {"double": x * 2, "pair": (x, x)},
    ),
    Good(
        "prepared weights",
        """
def prepare(self):
    packed = torch.cat([layer.weight.t().contiguous() for layer in self.layers], dim=1)
    return {"packed": packed, "width": packed.shape[1]}

def forward(self, x):
    y = x @ self.prepared.packed
    return y, self.prepared["width"]
""",
        x44,
        lambda m, x: (x @ torch.cat([k.weight.t() for k in m.layers], 1), 15),
        Stack,
    ),
]


def same(got: Any, want: Any) -> None:
    if isinstance(want, torch.Tensor):
        assert got.shape == want.shape and got.dtype == want.dtype
        torch.testing.assert_close(got, want)
    elif isinstance(want, (tuple, list)):
        assert type(got) is type(want) and len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            same(a, b)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        same(tuple(got.values()), tuple(want.values()))
    else:
        assert got == want and type(got) is type(want)


@pytest.mark.parametrize("case", GOOD, ids=[g.name for g in GOOD])
@torch.no_grad()
def test_plan_computes_what_torch_computes(case: Good) -> None:
    torch.manual_seed(0)
    model = case.model() if case.model else None
    plan, _ = plan_of(case.text, model, case.knobs)
    inputs = case.inputs()
    before = [t.clone() for t in inputs]
    same(plan.forward(*inputs), case.expected(model, *inputs))
    same(inputs, tuple(before))


def test_there_are_enough_golden_programs() -> None:
    assert len(GOOD) >= 25
