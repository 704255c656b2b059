"""Ten whole models for `hipwright model benchmarks.corpora.whole_models:NAME`; `small_NAME` is a small one of the kind.

Vision, language (encoder, prefill, decode), diffusion, speech and recommendation; random weights. Those named for a
package are the package's own; the others are written here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.corpora import compiled
from benchmarks.corpora.networks import TORCHVISION

Made = tuple[torch.nn.Module, Any]


class DecodeBlock(torch.nn.Module):
    """A pre-norm block that reads one token a sequence, and keys and values of those before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = torch.nn.RMSNorm(width), torch.nn.RMSNorm(width)
        self.qkv, self.out = (torch.nn.Linear(width, size, bias=False) for size in (3 * width, width))
        self.gate, self.up = (torch.nn.Linear(width, 4 * width, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """x: (batch, 1, width). keys, values: (batch, heads, tokens, width / heads)."""
        batch, _, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, keys, values)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, 1, width))
        y = self.after(x)
        return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))


class Decode(torch.nn.Module):
    """One step of decoding with a cache."""

    def __init__(self, width: int, heads: int, layers: int, words: int) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(words, width)
        self.blocks = torch.nn.ModuleList(DecodeBlock(width, heads) for _ in range(layers))
        self.norm, self.head = torch.nn.RMSNorm(width), torch.nn.Linear(width, words, bias=False)

    def forward(self, token: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """token: (batch, 1). keys, values: (layers, batch, heads, tokens, width / heads)."""
        x = self.words(token)
        for layer, block in enumerate(self.blocks):
            x = block(x, keys[layer], values[layer])
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


class Recommender(torch.nn.Module):
    """Dense features, tables of categories, and products of their pairs (DLRM, arXiv:1906.00091)."""

    def __init__(self, dense: int, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.bottom = _mlp(dense, 4 * width, width)
        self.tables = torch.nn.ModuleList(torch.nn.Embedding(rows, width) for _ in range(tables))
        self.top = _mlp(width + tables * (tables + 1) // 2, 8 * width, 4 * width, 1)
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        """dense: (batch, features). categories: (batch, tables)."""
        x = self.bottom(dense)
        found = torch.stack([x, *(table(categories[:, n]) for n, table in enumerate(self.tables))], 1)
        products = found @ found.transpose(1, 2)
        rows, columns = self.pairs
        score: torch.Tensor = torch.sigmoid(self.top(torch.cat([x, products[:, rows, columns]], 1)))
        return score


class Mixer(torch.nn.Module):
    """Products along patches and along channels by turns (arXiv:2105.01601)."""

    def __init__(self, width: int, patches: int) -> None:
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.along, self.across = _mlp(patches, 2 * patches, patches), _mlp(width, 4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, patches, width)."""
        x = x + self.along(self.first(x).transpose(1, 2)).transpose(1, 2)
        y: torch.Tensor = x + self.across(self.second(x))
        return y


class WideConv(torch.nn.Module):
    """A depthwise convolution, a norm of channels and two products (arXiv:2201.03545)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depth = torch.nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.mix = torch.nn.LayerNorm(width), _mlp(width, 4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, channels, height, width)."""
        y: torch.Tensor = x + self.mix(self.norm(self.depth(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        return y


def _mlp(*sizes: int) -> torch.nn.Sequential:
    layers = [torch.nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
    return torch.nn.Sequential(*[part for layer in layers for part in (layer, torch.nn.GELU())][:-1])


def _decode(real: bool) -> Made:
    """A step of decoding, eight sequences."""
    width, heads, layers, tokens, words = (2048, 16, 16, 1024, 32000) if real else (64, 4, 2, 12, 100)
    cache = torch.randn(2, layers, 8, heads, tokens, width // heads)
    return Decode(width, heads, layers, words), (torch.randint(0, words, (8, 1)), cache[0], cache[1])


def _recommendation(real: bool) -> Made:
    """A recommender."""
    batch, dense, tables, rows, width = (2048, 13, 26, 100_000, 64) if real else (32, 13, 4, 100, 8)
    inputs = torch.randn(batch, dense), torch.randint(0, rows, (batch, tables))
    return Recommender(dense, tables, rows, width), inputs


def _mixer(real: bool) -> Made:
    """Twelve mixers of patches."""
    batch, patches, width, layers = (16, 196, 768, 12) if real else (2, 16, 32, 3)
    return torch.nn.Sequential(*[Mixer(width, patches) for _ in range(layers)]), torch.randn(batch, patches, width)


def _convolutions(real: bool) -> Made:
    """A stage of wide convolutions."""
    batch, width, size, layers = (16, 192, 28, 9) if real else (2, 16, 8, 3)
    return torch.nn.Sequential(*[WideConv(width) for _ in range(layers)]), torch.randn(batch, width, size, size)


def _speech(real: bool) -> Made:
    """transformers' Whisper encoder."""
    exec(TORCHVISION, {})
    from transformers import WhisperConfig, WhisperModel

    width, layers, heads, places = (512, 6, 8, 1500) if real else (32, 2, 2, 10)
    sizes = {"d_model": width, "encoder_layers": layers, "encoder_attention_heads": heads}
    sizes |= {"encoder_ffn_dim": 4 * width, "decoder_layers": 1, "decoder_attention_heads": heads}
    tokens = {"vocab_size": 100, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = WhisperConfig(**sizes, **tokens, max_source_positions=places)
    return WhisperModel(config).encoder, torch.randn(2, config.num_mel_bins, 2 * places)


def _of_compiled(name: str) -> Callable[[bool], Made]:
    def made(real: bool) -> Made:
        model, inputs = compiled.MODELS[name](real)
        return model, inputs(8 if real else 2)

    return made


MODELS: dict[str, Callable[[bool], Made]] = {
    **{name: _of_compiled(name) for name in ("resnet18", "vit", "encoder", "diffusion")},
    "prefill": _of_compiled("decoder"),
    "decode": _decode,
    "recommendation": _recommendation,
    "mixer": _mixer,
    "convolutions": _convolutions,
    "speech": _speech,
}


def factory(name: str) -> Callable[[], Made]:
    """The factory of a model without arguments. Raises AttributeError for another name."""
    known = name.removeprefix("small_")
    if known not in MODELS:
        raise AttributeError(name)
    return lambda: MODELS[known](known == name)


def __getattr__(name: str) -> Callable[[], Made]:
    """`NAME` and `small_NAME`."""
    return factory(name)
