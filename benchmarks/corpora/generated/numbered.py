"""A corpus whose tasks are drawn from their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.corpora.corpus import CorpusTask


class Numbered:
    """A corpus of generated modules: the tasks of the numbers below `count`. written: the task of a number and a size.

    A corpus is a subclass, as what is listed is kept by the name of its class.
    """

    packages: tuple[str, ...] = ("torch",)
    imported: tuple[str, ...] = ()
    count: int
    written: Callable[[int, bool], CorpusTask]

    def tasks(self, real: bool = False) -> Iterator[CorpusTask]:
        """All tasks. real: at sizes that users run."""
        for number in range(self.count):
            yield type(self).written(number, real)
