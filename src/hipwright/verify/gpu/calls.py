"""Calls of a candidate on host tensors in the GPU's worker, with one wait for the device for several calls. Imports
torch.

Each wait for a GPU that many processes share is a context switch, some 10 ms where eighteen share it (an H200), so
calls that belong together are all enqueued first. The transfer of each call's results starts in stream order, before
the next call runs. A fault of the device is reported for the first call, whichever caused it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hipwright.errors import CandidateError, GuardFailed
from hipwright.tensors import HostTensor, Tree, map_tensors
from hipwright.verify.gpu.state_tables import StateTables
from hipwright.verify.gpu.subject_factory import LoadedCandidate, faults
from hipwright.verify.sequences.call_sequence import KEPT
from hipwright.verify.worker.deterministic import library_algorithms

Entry = tuple[dict[str, Any], Tree]


class CandidateCalls:
    """The calls of one worker's candidates.

    tables: the states that it holds. noise: starts other work on the device; None where there is no GPU.
    """

    def __init__(self, tables: StateTables, noise: Callable[[], None] | None) -> None:
        self._tables, self._noise = tables, noise
        self._cases: dict[str, Tree] = {}  # inputs on the host, by the parent's names

    def many(
        self, loaded: LoadedCandidate, header: Mapping[str, Any], given: Sequence[Tree]
    ) -> tuple[dict[str, Any], Tree]:
        """`WatchedCandidate.run` for each of header["runs"] on its entry of `given` -> one entry each in {"runs"} and
        in the tree.

        header["cases"]: names under which inputs are kept here; later their entry is None. "drop": names that are no
        longer needed. "together": wait once for all where there is memory for it. {"stale"} where a name is not known.
        An entry of the reply is the run's info, or {"guard", "line"} for a refused shape, or {"verdict"}, after which
        the list ends.
        """
        cases = self._held(header, given)
        if cases is None:
            return {"stale": True}, None
        row = _CallSequence(loaded, self._noise, together=bool(header.get("together")))
        for settings, case in zip(header["runs"], cases, strict=True):
            if not row.over:
                row.begin(settings, case)
        return row.answer()

    def sequence(
        self, loaded: LoadedCandidate, header: Mapping[str, Any], bundle: Sequence[Any]
    ) -> tuple[dict[str, Any], Tree]:
        """Calls in a row on one state, then the outputs that the first one kept once more.

        bundle: [inputs of each run, as for `many`; a state to write before each run, {"held": key} for one that the
        worker has, None for none]. header: as for
        `many`, and "carried": for each run, the buffers that keep their values when its state is written. The reply is
        that of `many` with one more entry, of outputs only, unless a call failed.
        """
        given, sent = bundle
        cases, states = self._held(header, given), [self._state(one) for one in sent]
        lost = any(one is not None and state is None for one, state in zip(sent, states, strict=True))
        if cases is None or lost:
            return {"stale": True}, None
        row = _CallSequence(loaded, self._noise, together=bool(header.get("together")))
        original = loaded.live.table
        with faults(loaded, self._noise is not None):
            for settings, case, state, carried in zip(header["runs"], cases, states, header["carried"], strict=True):
                if state is not None:
                    loaded.live.mutate(state, frozenset(carried))
                row.begin(settings, case)
                if row.over or row.declined:
                    return row.answer()
            kept = loaded.live.deferred_kept(KEPT, waited=row.waits)
            loaded.live.mutate(original)
            reply, trees = row.answer()
            if row.over:
                return reply, trees
            return {"runs": [*reply["runs"], {}]}, [*trees, {"outputs": kept()}]

    def _state(self, sent: Tree) -> Tree:
        """A state as it was sent, or the held one that stands there; None where that is not held any more."""
        return self._tables.get(sent["held"], None) if sent is not None and "held" in sent else sent

    def _held(self, header: Mapping[str, Any], given: Sequence[Tree]) -> list[Tree] | None:
        """The inputs of each run, including those that were sent earlier."""
        names = header.get("cases") or [""] * len(given)
        for name in header.get("drop", ()):
            self._cases.pop(name, None)
        self._cases |= {name: tree for name, tree in zip(names, given, strict=True) if name and tree is not None}
        if any(tree is None and name not in self._cases for name, tree in zip(names, given, strict=True)):
            return None
        return [self._cases[name] if tree is None else tree for name, tree in zip(names, given, strict=True)]


class _CallSequence:
    """Calls that are waited for together, or one by one."""

    def __init__(self, loaded: LoadedCandidate, noise: Callable[[], None] | None, *, together: bool) -> None:
        self._loaded, self._noise, self._together = loaded, noise, together
        self._found: list[Entry] = []
        self._waiting: list[Callable[[], Entry]] = []
        self.declined = False  # by a guard

    @property
    def over(self) -> bool:
        """Whether a call has failed."""
        return bool(self._found) and "verdict" in self._found[-1][0]

    @property
    def waits(self) -> bool:
        """Whether a call has not been waited for."""
        return bool(self._waiting)

    def begin(self, settings: Mapping[str, Any], case: Tree) -> None:
        """Enqueues one more call."""
        live, failed = self._loaded.live, False
        try:
            with faults(self._loaded, self._noise is not None):
                if settings.get("noise") and self._noise is not None:
                    self._noise()
                # a GPU's order of blocks cannot be chosen
                plain = {k: v for k, v in settings.items() if self._noise is None or k not in ("order", "seed")}
                with library_algorithms(settings):
                    ended = live.begin(plain, case, follows=self.waits)
        except (GuardFailed, CandidateError) as error:
            ended, failed = _raising(error), not isinstance(error, GuardFailed)
            self.declined = not failed
        self._waiting.append(ended)
        if failed or not (self._together and live.may_follow):
            self._finish()

    def answer(self) -> tuple[dict[str, Any], Tree]:
        """The entries of all calls."""
        self._finish()
        return {"runs": [info for info, _ in self._found]}, [tree for _, tree in self._found]

    def _finish(self) -> None:
        waiting, self._waiting = self._waiting, []
        for ended in waiting:
            if self.over:
                return
            try:
                with faults(self._loaded, self._noise is not None):
                    info, tree = ended()
                    # without a device the tree is the program's own memory, which the next call may be given
                    self._found.append((info, map_tensors(tree, _copied) if self._noise is None else tree))
            except GuardFailed as error:
                self._found.append(({"guard": error.message, "line": error.line}, None))
            except CandidateError as error:
                self._found.append(({"verdict": error.verdict().to_dict()}, None))


def _copied(tensor: HostTensor) -> HostTensor:
    return replace(tensor, storage=tensor.storage.copy())


def _raising(error: Exception) -> Callable[[], Entry]:
    def ended() -> Entry:
        raise error

    return ended
