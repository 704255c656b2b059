"""torchvision's classifiers, segmenters, video networks and optical flow, in evaluation and training mode."""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.corpora.corpus import CorpusTask, file_name
from benchmarks.corpora.networks import MODES, TORCHVISION, network_task

LEFT_OUT = re.compile(r"quantized_|rcnn|retinanet|fcos|ssd")
"""Detectors, whose results' sizes depend on values, and networks of quantised tensors, which torch.export refuses."""

SIZES = {"inception_v3": 299, "s3d": 224, "googlenet": 96, "maxvit_t": 224, "swin": 64, "raft": 128, "vit_h_14": 28}
"""Heights and widths for the cpu target, by the longest prefix; others take `SIZE`."""
SIZE = 64
VIDEO = {"mc3": 8, "r3d": 8, "r2plus1d": 8, "s3d": 16, "swin3d": 8, "mvit": 16}
"""Frames of video networks, by prefix."""


class TorchvisionModels:
    """One task for each architecture and mode, with random weights."""

    packages = ("torch", "torchvision")
    imported: tuple[str, ...] = ()

    def tasks(self, real: bool = False) -> Iterator[CorpusTask]:
        """All tasks. real: 16 images of 224 x 224 (video: 2 clips of 16 frames, most of 112 x 112; flow: 360 x 496)."""
        scope: dict[str, object] = {}
        exec(TORCHVISION, scope)
        for name in scope["torchvision"].models.list_models():  # type: ignore[attr-defined]
            if not LEFT_OUT.search(name):
                for mode in MODES:
                    yield CorpusTask(file_name(name, mode), _family(name), _text(name, mode, real))


def _family(name: str) -> str:
    return re.split(r"[\d_]", name)[0]


def _text(name: str, mode: str, real: bool) -> str:
    size = next((SIZES[key] for key in sorted(SIZES, key=len)[::-1] if name.startswith(key)), SIZE)
    size = max(size, 224) if real else size
    batch, extra = (16 if real else 2), ""
    frames = next((VIDEO[key] for key in VIDEO if name.startswith(key)), 0)
    shapes: list[tuple[int, ...]] = [(batch, 3, size, size)]
    if name.startswith("vit_"):
        extra = f", image_size={size}"
    if name.startswith("mvit"):
        shapes = [(1, 3, 16, 224, 224)]
    elif frames:
        shapes = [(2, 3, 16 if real else frames, *((112, 112) if real and name != "s3d" else (size, size)))]
    elif name.startswith("raft"):
        extra, shapes = ", num_flow_updates=3" if not real else "", [(1, 3, 360, 496) if real else (1, 3, 128, 128)] * 2
    elif name.startswith(("deeplab", "fcn", "lraspp")):
        extra = ", weights_backbone=None"
    build = f'torchvision.models.get_model("{name}", weights=None{extra})'
    return network_task(f"torchvision's {name}", TORCHVISION, build, shapes, mode)
