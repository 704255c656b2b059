"""Golden programs of launches, views and control flow."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .golden_case import Good, Stack, stack_expected, x44

CONTROL: list[Good] = [
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
]
