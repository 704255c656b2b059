"""timm's architectures: up to `EACH` of every file of models, with random weights, in evaluation mode."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from benchmarks.corpora.corpus import CorpusTask, file_name
from benchmarks.corpora.networks import TORCHVISION, network_task

EACH = 5
TOO_LARGE = re.compile(
    r"giant|huge|large|enormous|so\d+m|_\d+b(_|$)|[^a-z]xl|xxl|_g_|_h_|h14|g14|_l_|_f[3-7]|_m48|_m36|_e7"
)
"""Names of sizes that need gigabytes, or minutes of a laptop, for a forward pass."""
SIZE = 64
INCEPTION = 128
"""Heights and widths for the cpu target; inception networks halve them more often than others."""


class TimmModels:
    """One task for each chosen architecture."""

    packages = ("torch", "torchvision", "timm")
    imported: tuple[str, ...] = ()

    def tasks(self, real: bool = False) -> Iterator[CorpusTask]:
        """All tasks. real: 16 images of each model's own size, or 4 where that is larger than 384; else 2 of 64 x 64,
        where the model takes that.
        """
        exec(TORCHVISION, {})
        import timm

        for family in timm.list_modules():
            names = [name for name in timm.list_models(module=family) if not TOO_LARGE.search(name)]
            for name in sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())[:EACH]:
                shape = _shape(name, timm.get_pretrained_cfg(name), real)
                build = f'timm.create_model("{name}", pretrained=False)'
                text = network_task(f"timm's {name}", f"{TORCHVISION}\nimport timm", build, [shape], "eval")
                yield CorpusTask(file_name(name, "eval"), family, text)


def _shape(name: str, config: Any, real: bool) -> tuple[int, ...]:
    """The shape of a model's input. config: timm's entry of its pretrained weights, None where there is none."""
    own = tuple(config.input_size) if config is not None else (3, 224, 224)
    if real:
        return (16 if own[-1] <= 384 else 4, *own)
    if config is not None and config.fixed_input_size:
        return (1, *own)
    size = INCEPTION if name.startswith("inception") else SIZE
    least = tuple(config.min_input_size) if config is not None and config.min_input_size else (3, size, size)
    return (2, own[0], max(size, least[1]), max(size, least[2]))
