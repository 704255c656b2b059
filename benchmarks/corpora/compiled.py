"""Whole models of installed packages by `torch.compile(model, backend="hipwright")`, against eager.

    python -m benchmarks.corpora.compiled NAME [--train] [--real] [--device cuda] [--target T] [--time] [--json]

Outputs at several batch sizes, and with --train gradients and buffers after the steps, are compared with those of a
copy that runs eager. --time, on a GPU: seconds of a call beside eager and torch.compile's default, in turn. The exit
code is 1 where the relative error passes --error.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import hipwright
from benchmarks.corpora.networks import TORCHVISION
from hipwright.errors import HipwrightError

Inputs = Callable[[int], torch.Tensor]
Model = tuple[torch.nn.Module, Inputs]
BATCHES, REAL_BATCHES = (2, 3, 5), (8,)


class Wrapped(torch.nn.Module):
    """A model of transformers whose result is the last hidden state."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The hidden states of token ids."""
        found: torch.Tensor = self.model(input_ids=ids).last_hidden_state
        return found


class Branching(torch.nn.Module):
    """A model of our own with graph breaks: it branches on values, and prints nothing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)
        self.norm = torch.nn.BatchNorm1d(2 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One of two paths, by the sum of the values."""
        y = self.norm(torch.nn.functional.gelu(self.first(x)))
        y = y * 2 if y.sum() > 0 else torch.tanh(y)
        return self.second(y) + x


def _vision(build: str) -> torch.nn.Module:
    scope: dict[str, Any] = {}
    exec(TORCHVISION, scope)
    made: torch.nn.Module = eval(build, scope)
    return made


def _images(size: int) -> Inputs:
    return lambda batch: torch.randn(batch, 3, size, size)


def resnet18(real: bool) -> Model:
    """torchvision's ResNet-18."""
    return _vision("torchvision.models.resnet18()"), _images(224 if real else 64)


def vit(real: bool) -> Model:
    """torchvision's vision transformer: ViT-B/16, or two layers of width 64."""
    small = "image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128"
    build = "torchvision.models.vit_b_16()" if real else f"torchvision.models.VisionTransformer({small})"
    model = _vision(build)
    torch.nn.init.normal_(model.heads.head.weight, std=0.02)  # torchvision's is 0, and so is every output
    return model, _images(224 if real else 32)


def _tokens(vocabulary: int, length: int) -> Inputs:
    return lambda batch: torch.randint(0, vocabulary, (batch, length))


def decoder(real: bool) -> Model:
    """transformers' Llama, without a cache."""
    exec(TORCHVISION, {})
    from transformers import LlamaConfig, LlamaModel

    sizes = (2048, 5632, 16, 16, 8, 32000) if real else (64, 128, 2, 4, 2, 100)
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    config = LlamaConfig(**dict(zip((*names, "vocab_size"), sizes, strict=True)), use_cache=False)
    return Wrapped(LlamaModel(config)), _tokens(sizes[-1], 512 if real else 16)


def encoder(real: bool) -> Model:
    """transformers' BERT."""
    exec(TORCHVISION, {})  # transformers imports it
    from transformers import BertConfig, BertModel

    sizes = (768, 3072, 12, 12, 30000) if real else (64, 128, 2, 4, 100)
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(**dict(zip(names, sizes, strict=True)), **dropout)
    return Wrapped(BertModel(config)), _tokens(sizes[-1], 512 if real else 16)


def diffusion(real: bool) -> Model:
    """diffusers' transformer block."""
    from diffusers.models.attention import BasicTransformerBlock

    width, heads = (640, 10) if real else (64, 4)
    block = BasicTransformerBlock(dim=width, num_attention_heads=heads, attention_head_dim=width // heads)
    return block, lambda batch: torch.randn(batch, 1024 if real else 32, width)


def branching(real: bool) -> Model:
    """Our own model with graph breaks."""
    width = 1024 if real else 32
    return Branching(width), lambda batch: torch.randn(batch + 8, width)


MODELS = {made.__name__: made for made in (resnet18, vit, decoder, encoder, diffusion, branching)}


def main(argv: list[str] | None = None) -> int:
    """Compares one model. Returns 0, 1 where it is wrong, 2 for bad input."""
    options = _parser().parse_args(argv)
    try:
        found = compared(options)
    except HipwrightError as error:
        print(f"error: {error.message}" + (f" ({error.hint})" if error.hint else ""), file=sys.stderr)
        return error.exit_code
    print(json.dumps(found, indent=1) if options.json else _text(found))
    return int(not found["error"] <= options.error)


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m benchmarks.corpora.compiled", description=__doc__, formatter_class=raw)
    parser.add_argument("name", choices=sorted(MODELS))
    parser.add_argument("--train", action="store_true", help="forward and backward in training mode")
    parser.add_argument("--real", action="store_true", help="sizes that users run, for a GPU")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument("--target", default="cpu", help="cpu, cuda or rocm (default: cpu)")
    parser.add_argument("--budget", type=int, default=1, help="evaluations for each graph (default: 1)")
    parser.add_argument("--time", action="store_true", help="time calls beside eager and torch.compile, on a GPU")
    parser.add_argument("--error", type=float, default=1e-4, help="the relative error that passes (default: 1e-4)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return parser


def compared(options: argparse.Namespace) -> dict[str, Any]:
    """The errors, the graphs, and the times of one model."""
    torch.manual_seed(0)
    model, inputs = MODELS[options.name](options.real)
    model = model.to(options.device).train(options.train)
    twin, start = copy.deepcopy(model), time.perf_counter()
    how = {"target": options.target, "budget": options.budget}
    fast = torch.compile(model, backend=hipwright.backend, options=how)
    errors = []
    for batch in REAL_BATCHES if options.real else BATCHES:
        x = inputs(batch).to(options.device)
        errors += _trained(fast, twin, x) if options.train else _evaluated(fast, twin, x)
    if options.train:
        errors += [_relative(a, b) for a, b in zip(model.buffers(), twin.buffers(), strict=True)]
    graphs = hipwright.compiled_graphs()
    found: dict[str, Any] = {
        "model": options.name,
        "mode": "train" if options.train else "eval",
        "error": max(errors),
        "seconds": round(time.perf_counter() - start, 1),
        "verified": sum(graph.status == "verified" for graph in graphs),
        "graphs": [_described(graph) for graph in graphs],
    }
    if options.time:
        found["times"] = _times(fast, twin, inputs(REAL_BATCHES[0] if options.real else BATCHES[0]).to(options.device))
    return found


def _described(graph: Any) -> dict[str, Any]:
    coverage = graph.result.evaluation.coverage if graph.status == "verified" else None
    reasons = {why: count for why, count in graph.fallbacks.items() if count}
    calls = {"program_calls": graph.program_calls, "fallbacks": reasons}
    return {"name": graph.name, "status": graph.status, "why": graph.why, "coverage": coverage, **calls}


def _evaluated(fast: Any, twin: Any, x: torch.Tensor) -> list[float]:
    with torch.no_grad():
        return [_relative(fast(x), twin(x))]


def _trained(fast: Any, twin: Any, x: torch.Tensor) -> list[float]:
    results = []
    for one in (fast, twin):
        one.zero_grad()
        out = one(x)
        out.square().mean().backward()
        results.append([out.detach(), *(p.grad for p in one.parameters() if p.grad is not None)])
    return [_relative(a, b) for a, b in zip(*results, strict=True)]


def _relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The norm of the difference as a share of the exact one's."""
    scale = max(float(exact.double().norm()), 1e-30)
    return float((found.double() - exact.double()).norm()) / scale


def _times(fast: Any, twin: Any, x: torch.Tensor, rounds: int = 30) -> dict[str, float]:
    """Median milliseconds of a call, the three taken in turn."""
    ways = {"hipwright": fast, "eager": twin, "torch.compile": torch.compile(copy.deepcopy(twin))}
    samples: dict[str, list[float]] = {name: [] for name in ways}
    with torch.no_grad():
        for number in range(rounds + 3):
            for name, way in ways.items():
                _wait(x)
                start = time.perf_counter()
                way(x)
                _wait(x)
                if number >= 3:
                    samples[name].append(1e3 * (time.perf_counter() - start))
    return {name: round(statistics.median(values), 4) for name, values in samples.items()}


def _wait(x: torch.Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def _text(found: dict[str, Any]) -> str:
    head = (
        f"{found['model']} ({found['mode']}): relative error {found['error']:.1e}, "
        f"{found['verified']} of {len(found['graphs'])} graphs verified, {found['seconds']} s"
    )
    lines = [head]
    for graph in found["graphs"]:
        state = graph["status"] + (f": {graph['why']}" if graph["why"] else "")
        share = "" if graph["coverage"] is None else f", coverage {100 * graph['coverage']:.0f} %"
        lines.append(f"  {graph['name']}: {state}{share}, {graph['program_calls']} calls of the program")
        lines += [f"    {count} eager: {why}" for why, count in graph["fallbacks"].items()]
    lines += [f"  {name}: {value} ms a call" for name, value in found.get("times", {}).items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
