"""The description of a task: operators, families, bytes, operations, roofline times on named devices, and difficulty.

Operator names come from the captured graph, which has them before decomposition; bytes and operations come from the
traced reference, by the rules of measure/cost.py. Roofline times are computed from published peaks, never measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from hipwright.measure.cost import FREE, base_name, is_product, op_flops, tensor_bytes
from hipwright.records import TensorSpec
from hipwright.synth.check import CheckedTask
from hipwright.synth.records import Difficulty, Draft, SyntheticTask
from hipwright.targets import OFFLINE, TARGETS

if TYPE_CHECKING:
    from hipwright.synth.operators.base import SynthOperator


@dataclass(frozen=True)
class PublishedPeaks:
    """Published peaks. bandwidth: bytes/s; flops: dense operations/s by dtype, of matrix units for products."""

    bandwidth: float
    flops: Mapping[str, float]


# NVIDIA's datasheets of the H100 SXM5 and H200 SXM: 3.35 and 4.8 TB/s; dense, FP64 by tensor cores 67, FP32 67,
# FP16/BF16 989.4 TFLOP/s (half of the sparse figure), INT8 1978.9. Float32 products count at the FP32 rate: torch's
# default is not TF32.
_HOPPER = {"float64": 67e12, "float32": 67e12, "float16": 989.4e12, "bfloat16": 989.4e12, "int8": 1978.9e12}

DEVICES: dict[str, PublishedPeaks] = {
    **{
        OFFLINE[name].product.removeprefix("Instinct "): PublishedPeaks(OFFLINE[name].bandwidth, OFFLINE[name].flops)
        for name in TARGETS.default_offline
    },
    "H100": PublishedPeaks(3.35e12, _HOPPER),
    "H200": PublishedPeaks(4.8e12, _HOPPER),
}
"""The devices of the roofline times; the first decides whether a task is memory- or compute-bound."""

_SORTS_AND_SCATTERS = "sort argsort topk kthvalue msort scatter scatter_add scatter_reduce index_add index_put"
_SORTS = frozenset(_SORTS_AND_SCATTERS.split())
_COPIES = ("clone", "contiguous", "detach", "alias", "_to_copy", "to", "type_as", "dropout", "getitem")
_SCANS = frozenset(["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"])
_HARD, _MEDIUM = 11, 5  # points from which a task is hard, or medium

# reductions, with the position of `dim` among their arguments
_DIM_FIRST_OPTION = (
    "sum mean amax amin argmax argmin var std var_mean std_mean prod logsumexp softmax log_softmax softmin all any "
    "nansum nanmean count_nonzero median max min aminmax"
)
_DIM_POSITION = {
    **dict.fromkeys(_DIM_FIRST_OPTION.split(), 1),
    **dict.fromkeys(("linalg_vector_norm", "norm", "cosine_similarity"), 2),
}
_DEFAULT_DIM = {"cosine_similarity": 1}
_SEVERAL = frozenset(["group_norm", "instance_norm", "batch_norm", "native_group_norm"])
_LOSSES = ("_loss", "kl_div", "cross_entropy")
_LAYER = frozenset(["layer_norm", "rms_norm", "native_layer_norm"])


def synthetic_task(draft: Draft, checked: CheckedTask, *, graph: str, provenance: Mapping[str, Any]) -> SyntheticTask:
    """The record of a checked draft. graph: its canonical hash; provenance: further fields of its provenance."""
    nodes = checked.graph["nodes"]
    names = [base_name(node["op"]) for node in nodes]
    outline, facts = checked.outline, checked.description
    moved = float(sum(map(tensor_bytes, _spec_dicts(outline.specs()))))
    times, bound = _roofline(outline.ops, moved)
    axes = reduction_axes(checked.graph)
    flops = float(sum(_flops(outline.ops).values()))
    return SyntheticTask(
        draft=draft,
        task=checked.task.key,
        operators=tuple(dict.fromkeys(str(node["op"]) for node in nodes if node["op"] != "getitem")),
        families=tuple(dict.fromkeys(one for one in map(family, names) if one not in ("", "view"))),
        fused=sum(is_fused(name) for name in names),
        dtype=main_dtype(facts.inputs),
        inputs=facts.inputs,
        outputs=facts.outputs,
        bytes=moved,
        flops=flops,
        intensity=round(flops / moved, 4) if moved else 0.0,
        roofline_us=times,
        difficulty=difficulty(names, axes, len(facts.outputs)),
        graph=graph,
        provenance={**provenance, "bound": bound, "reduction_axes": list(axes)},
    )


def is_fused(name: str) -> bool:
    """Whether an operator, by its bare name, is neither a view nor a copy, a product or a sort."""
    if (known := _library().get(name)) is not None:
        return not (known.view or known.library)
    return family(name) not in ("view", "products") and name not in (*_SORTS, *_COPIES)


@cache
def family(name: str) -> str:
    """The family of an ATen operator by its bare name: the library's, else that of its lowering; "" for none."""
    if (known := _library().get(name)) is not None:
        return known.family
    if name in FREE:
        return "view"
    return "products" if is_product(name) else _engine_families().get(name, "")


@cache
def _library() -> dict[str, SynthOperator]:
    from hipwright.synth.library import LIBRARY

    return {base_name(one.aten): one for one in LIBRARY}


@cache
def _engine_families() -> dict[str, str]:
    from hipwright.engine.lower.operators import TABLE, family

    found = {}
    for op in TABLE:
        name = base_name(op)
        found[name] = "normalisations" if name.endswith("_norm") or "batch_norm" in name else family(op)
    return found


def difficulty(names: Sequence[str], axes: Sequence[str], outputs: int) -> Difficulty:
    """By points: one for each fused operator and each further output; two for each scan, library call and reduction
    after the first; two for a reduction over anything but the last axis. From 5 medium, from 11 hard."""
    points = sum(map(is_fused, names)) + outputs - 1
    points += 2 * sum(name in _SCANS or name in _SORTS or is_product(name) for name in names)
    points += 2 * max(0, len(axes) - 1) + 2 * any(axis != "last" for axis in axes)
    return "hard" if points >= _HARD else "medium" if points >= _MEDIUM else "easy"


def summary(tasks: Sequence[SyntheticTask]) -> dict[str, Any]:
    """Counts over a set of tasks, as `synth --json` prints them."""
    names = {base_name(name) for one in tasks for name in one.operators}
    deep = sum(one.fused >= 3 for one in tasks)
    return {
        "operators": len(names),
        "families": sorted({name for one in tasks for name in one.families}),
        "fused_3_or_more": round(deep / len(tasks), 4) if tasks else 0.0,
        "difficulty": dict(Counter(one.difficulty for one in tasks)),
        "dtypes": dict(Counter(one.dtype for one in tasks)),
        "modes": dict(Counter(one.draft.mode for one in tasks)),
    }


# ---------------------------------------------------------------- the roofline


def _flops(ops: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Operations by the dtype whose rate they run at: products at their own, the rest at float32's or float64's."""
    found: Counter[str] = Counter()
    for op in ops:
        name = base_name(op["op"])
        if name in FREE or not op["out"]:
            continue
        dtype = str((op["in"] or op["out"])[0]["dtype"])
        found[dtype if is_product(name) or dtype == "float64" else "float32"] += op_flops(op)
    return found


def _roofline(ops: Iterable[Mapping[str, Any]], moved: float) -> tuple[dict[str, float], Literal["memory", "compute"]]:
    """({device: microseconds}, the bound on the first device): the longer of the memory and the arithmetic time."""
    work = _flops(ops)
    times: dict[str, float] = {}
    bounds: list[Literal["memory", "compute"]] = []
    for name, device in DEVICES.items():
        memory = moved / device.bandwidth
        compute = sum(count / device.flops.get(dtype, device.flops["float32"]) for dtype, count in work.items())
        times[name] = round(1e6 * max(memory, compute), 6)
        bounds.append("memory" if memory >= compute else "compute")
    return times, bounds[0]


def _spec_dicts(specs: Iterable[TensorSpec]) -> list[dict[str, Any]]:
    return [{"dtype": spec.dtype, "shape": spec.shape, "stride": spec.stride} for spec in specs]


def main_dtype(inputs: Sequence[TensorSpec]) -> str:
    """The dtype of most input elements; a floating dtype where there is one."""
    counts: Counter[str] = Counter()
    for spec in inputs:
        counts[spec.dtype] += prod(spec.shape)
    return max(counts, key=lambda name: ("float" in name, counts[name]), default="")


# ---------------------------------------------------------------- reductions


def reduction_axes(graph: Mapping[str, Any]) -> tuple[str, ...]:
    """For each reduction of a captured graph, in order: "last", "middle", "first" or "several" axes."""
    ranks = {one["name"]: len(one["meta"]["shape"]) for one in graph["inputs"]}
    found = []
    for node in graph["nodes"]:
        ranks[node["name"]] = len(node["outs"][0]["shape"]) if node["outs"] and node["outs"][0] else 0
        name, first = base_name(node["op"]), node["args"][0] if node["args"] else None
        rank = ranks.get(first["node"], 0) if isinstance(first, Mapping) and "node" in first else 0
        if rank and (axis := _axis(name, str(node["op"]), node["args"], node["kwargs"], rank)):
            found.append(axis)
    return tuple(found)


def _axis(name: str, op: str, args: Sequence[Any], kwargs: Mapping[str, Any], rank: int) -> str:
    if name in _SEVERAL or any(word in name for word in _LOSSES):
        return "several"
    if name in _LAYER:
        return "last" if len(args) > 1 and len(args[1]) == 1 else "several"
    if name not in _DIM_POSITION or op.endswith((".other", ".correction_out")):
        return ""
    place = _DIM_POSITION[name]
    given = kwargs.get("dim", args[place] if len(args) > place else _DEFAULT_DIM.get(name))
    dims = list(range(rank)) if given in (None, [], ()) else [given] if isinstance(given, int) else list(given)
    if len(dims) != 1:
        return "several"
    dim = int(dims[0]) % rank
    return "last" if dim == rank - 1 else "first" if dim == 0 else "middle"
