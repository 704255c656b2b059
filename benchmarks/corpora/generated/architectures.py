"""Generated networks: whole small architectures of the kinds that people build, of drawn widths, depths and options.

Everything is drawn from the task's number, so that a number is the same task on every machine; no task is chosen or
tuned. Small and real sizes are of the same architecture: its blocks, depth and options; widths and inputs differ.
"""

from __future__ import annotations

import random

from benchmarks.corpora.corpus import CorpusTask
from benchmarks.corpora.generated import image_networks, sequence_networks, token_networks
from benchmarks.corpora.generated.networks import Network, used_blocks
from benchmarks.corpora.generated.numbered import Numbered

COUNT = 240
"""Tasks of the corpus."""
DTYPES = ("float32",) * 8 + ("bfloat16", "float16")
"""Data types, float32 eight times as often as each of the others."""
EVALUATED = 0.3
"""The share of networks in evaluation mode."""
KINDS = {one.__name__: one for one in (*image_networks.KINDS, *token_networks.KINDS, *sequence_networks.KINDS)}
"""Every kind by name. A family is a kind and a data type."""


def written(number: int, real: bool) -> CorpusTask:
    """The task of a number: the first of its draws that is affordable at small and at real sizes."""
    of_number = random.Random(f"architecture {number}")
    kind, dtype = list(KINDS)[number % len(KINDS)], of_number.choice(DTYPES)
    evaluated = of_number.random() < EVALUATED
    for attempt in range(1000):
        networks = [Network(random.Random(f"architecture {number} {attempt}"), size, dtype) for size in (False, True)]
        for network in networks:
            KINDS[kind](network)
        if all(network.affordable for network in networks):
            text = _text(kind, networks[real], evaluated)
            return CorpusTask(f"architecture_{number:03d}_{kind}_{dtype}", f"{kind}_{dtype}", text)
    raise AssertionError(f"no affordable network of number {number}")


def _text(kind: str, network: Network, evaluated: bool) -> str:
    made = [*network.made]
    made += [f"self.to(torch.{network.dtype})"] if network.dtype != "float32" else []
    made += ["self.eval()"] if evaluated else []
    title = f"A generated network: {kind}, {network.dtype}, {'evaluation' if evaluated else 'training'} mode"
    blocks = "".join(f"{block}\n\n\n" for block in used_blocks("\n".join(made + network.body)))
    return network.text(title, made, blocks)


class Architectures(Numbered):
    """Generated networks, a family for each kind and data type."""

    count = COUNT
    written = staticmethod(written)
