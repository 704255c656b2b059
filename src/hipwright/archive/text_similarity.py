"""Similarity of texts: BM25 over words (Robertson and Zaragoza, 2009) combined with the cosine of features."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import sqrt

_DIGITS = 4  # decimals; further ones depend on the order of float32 additions


@dataclass(frozen=True)
class Text:
    """One text to compare. words: with repetitions, which count; features: weights by name."""

    words: Sequence[str]
    features: Mapping[str, float] = field(default_factory=dict)


def rank(query: Text, texts: Sequence[Text], by_features: float = 0.5) -> list[float]:
    """Returns each text's similarity to the query, 0 to 1: BM25 relative to the best text, and the cosine.

    by_features: the weight of the cosine.
    """
    lexical = _bm25(query.words, [text.words for text in texts])
    best = max(lexical, default=0.0)
    scaled = [value / best if best > 0 else 0.0 for value in lexical]
    angles = [cosine(query.features, text.features) for text in texts]
    combined = ((1 - by_features) * a + by_features * b for a, b in zip(scaled, angles, strict=True))
    return [round(value, _DIGITS) for value in combined]


def cosine(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    """The cosine of two sparse vectors; 0 if one is empty."""
    shared = sum(a[name] * b[name] for name in sorted(a.keys() & b.keys()))
    lengths = sqrt(sum(v * v for v in a.values())) * sqrt(sum(v * v for v in b.values()))
    return shared / lengths if lengths else 0.0


def _bm25(query: Sequence[str], documents: Sequence[Sequence[str]]) -> list[float]:
    """Lucene's BM25 of each document; 0 for a query without known words, which bm25s rejects."""
    vocabulary = {word for document in documents for word in document}
    known = sorted({word for word in query if word in vocabulary})
    if not known:
        return [0.0] * len(documents)
    with _without("jax", "jax.lax"):  # bm25s would start it, and it takes three quarters of a GPU's memory at once
        import bm25s  # type: ignore[import-untyped]  # 40 ms, and numpy

    logging.getLogger("bm25s").setLevel(logging.WARNING)  # the package sets DEBUG
    index = bm25s.BM25(method="lucene")
    index.index([list(document) for document in documents], show_progress=False)
    return [float(value) for value in index.get_scores(known)]


@contextmanager
def _without(*names: str) -> Iterator[None]:
    """A context in which these modules cannot be imported; those that were stay."""
    kept = {name: sys.modules[name] for name in names if name in sys.modules}
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(kept)
