"""The modules of the false-refusal benchmark, as task files."""

from __future__ import annotations

from dataclasses import dataclass

_TEXT = """import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


@dataclass(frozen=True)
class HonestTask:
    """A module. init, body: lines of the constructor and of forward; inputs: name -> the expression that draws it."""

    name: str
    init: str
    body: str
    inputs: dict[str, str]

    @property
    def source(self) -> str:
        """The task file."""
        lines = {"init": self.init or "pass", "body": self.body}
        indented = {key: "\n        ".join(text.splitlines()) for key, text in lines.items()}
        drawn = ", ".join(self.inputs.values())
        return _TEXT.format(**indented, names=", ".join(self.inputs), inputs=drawn)


def _rand(*shape: int, dtype: str = "") -> str:
    sizes = ", ".join(map(str, shape))
    return f"torch.randn({sizes})" + (f".{dtype}()" if dtype else "")


def _task(name: str, init: str, body: str, **inputs: str) -> HonestTask:
    return HonestTask(name, init, body, inputs)


def _after_linear(name: str, body: str, dtype: str = "", terms: int = 8192, rows: int = 16) -> HonestTask:
    """A product with long sums, and what decides or clips by its result, y."""
    cast = f".{dtype}()" if dtype else ""
    init, first = f"self.linear = nn.Linear({terms}, 48){cast}", "y = self.linear(x)\n"
    return _task(name, init, first + body, x=_rand(rows, terms, dtype=dtype))


_KINKS = (
    _after_linear("subtract_multiply_relu", "return torch.relu((y - 0.3) * 1.5)"),
    _after_linear("sparse_relu", "return torch.relu((y - 1.6) * 1.5)"),
    _after_linear("sparse_relu_wide", "return torch.relu(y - 2.2)", terms=2048, rows=128),
    _after_linear("clamp", "return torch.clamp(y * 2, -0.1, 0.2)"),
    _after_linear("hardtanh", "return F.hardtanh(y * 3 + 1)"),
    _after_linear("leaky_relu", "return F.leaky_relu(y - 0.5, 1e-4)"),
    _after_linear("hardswish", "return F.hardswish(y * 4)"),
    _after_linear("threshold", "return F.threshold(y, 0.4, 0.4)"),
    _after_linear("softshrink", "return F.softshrink(y, 0.9)"),
    _after_linear("difference_of_products", "return torch.relu(y - self.linear(x + 0.01))"),
    _after_linear("floor", "return torch.floor(y * 8)"),
    _after_linear("round", "return torch.round(y * 16) / 16"),
    _after_linear("greater", "return y > 0.25"),
    _after_linear("where", "return torch.where(y > 0.25, y * 2, -y)"),
    _after_linear("sign", "return torch.sign(y) * x[:, :48]"),
    _after_linear("remainder", "return torch.remainder(y, 0.25)"),
    _after_linear("floor_bf16", "return torch.floor(y * 8)", "bfloat16", 1024),
    _after_linear("where_bf16", "return torch.where(y > 0.25, y * 2, -y)", "bfloat16", 1024),
    _after_linear("greater_fp16", "return y > 0.25", "half", 1024),
    _after_linear("sparse_relu_bf16", "return torch.relu(y - 1.6)", "bfloat16", 1024),
    _task("maximum", "self.a = nn.Linear(4096, 64)\nself.b = nn.Linear(4096, 64)",
          "return torch.maximum(self.a(x), self.b(x)) - self.b(x)", x=_rand(16, 4096)),
    _task("relu_of_variance", "", "return torch.relu(x.var(-1) - 1.0)", x=_rand(64, 4096)),
    _task("hinge_loss", "self.linear = nn.Linear(512, 8)",
          "return torch.relu(1 - self.linear(x) * y).mean()", x=_rand(64, 512), y="torch.randn(64, 8).sign()"),
)  # fmt: skip

_PLAIN = (
    _task("mlp_gelu", "self.up = nn.Linear(1024, 512)\nself.down = nn.Linear(512, 256)",
          "return self.down(F.gelu(self.up(x)))", x=_rand(16, 1024)),
    _task("mlp_relu_deep", "self.net = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(256, 256), nn.ReLU())])",
          "return self.net(x)", x=_rand(32, 256)),
    _task("mlp_fp16", "self.up = nn.Linear(512, 512).half()\nself.down = nn.Linear(512, 128).half()",
          "return self.down(torch.relu(self.up(x)))", x=_rand(16, 512, dtype="half")),
    _task("matmul", "", "return a @ b", a=_rand(16, 8192), b=_rand(8192, 32)),
    _task("matmul_bf16", "", "return a @ b", a=_rand(16, 4096, dtype="bfloat16"), b=_rand(4096, 32, dtype="bfloat16")),
    _task("batched", "", "return torch.bmm(a, b)", a=_rand(4, 24, 1024), b=_rand(4, 1024, 24)),
    _task("attention", "", "return F.scaled_dot_product_attention(q, k, v)",
          q=_rand(2, 4, 64, 64), k=_rand(2, 4, 64, 64), v=_rand(2, 4, 64, 64)),
    _task("causal_attention_bf16", "", "return F.scaled_dot_product_attention(q, k, v, is_causal=True)",
          **{name: _rand(2, 2, 64, 64, dtype="bfloat16") for name in "qkv"}),
    _task("softmax", "", "return torch.softmax(x, -1)", x=_rand(16, 8192)),
    _task("log_softmax", "", "return torch.log_softmax(x * 4, -1)", x=_rand(32, 2048)),
    _task("logsumexp", "", "return torch.logsumexp(x, -1)", x=_rand(64, 2048)),
    _task("layer_norm", "self.norm = nn.LayerNorm(4096)", "return self.norm(x)", x=_rand(16, 4096)),
    _task("rms_norm", "self.g = nn.Parameter(torch.ones(4096))",
          "return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.g", x=_rand(16, 4096)),
    _task("group_norm_relu", "self.norm = nn.GroupNorm(4, 16)", "return torch.relu(self.norm(x))",
          x=_rand(4, 16, 24, 24)),
    _task("batch_norm_train", "self.norm = nn.BatchNorm1d(64)", "return torch.relu(self.norm(x))", x=_rand(512, 64)),
    _task("conv_relu", "self.conv = nn.Conv2d(32, 32, 3, padding=1)", "return torch.relu(self.conv(x) - 0.2)",
          x=_rand(2, 32, 20, 20)),
    _task("conv_norm_pool", "self.conv = nn.Conv2d(16, 32, 3)\nself.norm = nn.BatchNorm2d(32)",
          "return torch.relu(self.norm(self.conv(x))).mean((2, 3))", x=_rand(4, 16, 18, 18)),
    _task("cumsum", "", "return torch.cumsum(x, -1)", x=_rand(8, 4096)),
    _task("mse_loss", "", "return F.mse_loss(a, b)", a=_rand(64, 512), b=_rand(64, 512)),
    _task("cross_entropy", "self.head = nn.Linear(256, 300)", "return F.cross_entropy(self.head(x), t)",
          x=_rand(64, 256), t="torch.randint(0, 300, (64,))"),
    _task("huber_loss", "self.head = nn.Linear(512, 16)", "return F.huber_loss(self.head(x), y, delta=0.5)",
          x=_rand(64, 512), y=_rand(64, 16)),
    _task("cosine", "", "return F.cosine_similarity(a, b, dim=-1)", a=_rand(64, 1024), b=_rand(64, 1024)),
    _task("kl_loss", "", "return F.kl_div(torch.log_softmax(a, -1), torch.softmax(b, -1), reduction='batchmean')",
          a=_rand(32, 500), b=_rand(32, 500)),
)  # fmt: skip

_LAYERS = (
    _task("encoder_layer", "self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)",
          "return self.layer(x)", x=_rand(2, 12, 32)),
    _task("encoder_layer_first", "self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, norm_first=True)",
          "return self.layer(x)", x=_rand(6, 2, 16)),
    _task("decoder_layer", "self.layer = nn.TransformerDecoderLayer(4, 2, 16, dropout=0.0)",
          "return self.layer(x, memory)", x=_rand(4, 3, 4), memory=_rand(5, 3, 4)),
    _task("decoder_layer_wide", "self.layer = nn.TransformerDecoderLayer(32, 4, 64, dropout=0.0, batch_first=True)",
          "return self.layer(x, memory)", x=_rand(2, 6, 32), memory=_rand(2, 8, 32)),
    _task("encoder_layer_fp16", "self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0).half()",
          "return self.layer(x)", x=_rand(6, 2, 32, dtype="half")),
    _task("multihead", "self.attend = nn.MultiheadAttention(32, 4, batch_first=True)",
          "return self.attend(x, x, x)[0]", x=_rand(2, 16, 32)),
)  # fmt: skip

TASKS = (*_KINKS, *_PLAIN, *_LAYERS)
