"""Own-written ModelNew candidates, and the task each is for."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent
PAIRS = {
    "elementwise": "gate",
    "row_reduce": "row_norm",
    "softmax": "softmax_scaled",
    "layernorm": "layer_norm_affine",
    "matmul_tiled": "matmul",
    "several_outputs": "row_extrema",
    "half_dispatch": "half_residual_relu",
    "scalar_args": "clip_or_wrap",
    "two_kernels": "centred_variance",
    "depthwise": "depthwise",
    "hip_source": "linear_gelu",
    "out_parameter": "add_scaled",
}


def candidate(name: str) -> str:
    """The text of a candidate."""
    return (ROOT / "candidates" / f"{name}.py").read_text()


def task(name: str) -> str:
    """The text of the task that a candidate is for."""
    return (ROOT / "tasks" / f"{PAIRS[name]}.py").read_text()
