"""Golden programs of host arithmetic, library calls, factories and outputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .golden_case import Good, Stack, x44

CALLS: list[Good] = [
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
