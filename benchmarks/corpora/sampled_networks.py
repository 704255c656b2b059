"""Sixty networks for a GPU: the fixed samples of torchvision, timm and transformers in one corpus."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.corpora.corpus import Corpus, CorpusTask, file_name, sample_of
from benchmarks.corpora.timm_models import TimmModels
from benchmarks.corpora.torchvision_models import TorchvisionModels
from benchmarks.corpora.transformers_models import TransformersModels

SHARES: tuple[tuple[Corpus, int], ...] = ((TorchvisionModels(), 20), (TimmModels(), 25), (TransformersModels(), 15))
"""How many of each corpus; their `--sample` of this size chooses the same."""


class SampledNetworks:
    """Twenty of torchvision, 25 of timm and 15 of transformers, named TIMM_..., and each a family of its own."""

    packages = ("torch", "torchvision", "timm", "transformers")
    imported: tuple[str, ...] = ()

    def tasks(self, real: bool = False) -> Iterator[CorpusTask]:
        """All tasks. real: at the sizes that users run."""
        for source, share in SHARES:
            for task in sample_of(list(source.tasks(real)), share):
                name = file_name(source.packages[-1], task.name)
                yield CorpusTask(name, name, task.text)
