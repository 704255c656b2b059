"""Synthesis: drafts drawn from (seed, index), checked on all cores, taken or dropped strictly in order of index.

What an index becomes depends on the settings and on the indices before it alone, never on how many workers there are or
on when the process was killed: drafts are drawn and examined ahead of their turn, and the turn decides.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Protocol

from msgspec.structs import replace

from hipwright import __version__
from hipwright.errors import BadInput, WorkerError
from hipwright.events import Listener, silent
from hipwright.records import content_key
from hipwright.sandbox import Zygote
from hipwright.synth import constrain, mutate
from hipwright.synth.check import TaskRefused, examine, same_task
from hipwright.synth.describe import describe
from hipwright.synth.records import Draft, DroppedDraft, Made, Mode
from hipwright.synth.store import SynthStore

AHEAD = 3  # indices under way for each worker
FRUITLESS = 300  # indices in a row that may come to nothing
CHANGES = 2  # of one mutation, at most
WARM = ("torch", "hipwright.task.host.warm")
_CHECK_SEED = 0

Written = tuple[Draft | None, tuple[DroppedDraft, ...]]


class DraftWriter(Protocol):
    """The LLM mind: a draft, or None, and what was refused on the way. Raises OutOfBudget and ProviderError."""

    def __call__(self, index: int, mode: Mode, parents: Mapping[str, str], constraint: str, zygote: Zygote) -> Written:
        """parents: {name: source}; constraint: in words, "" for none."""
        ...


@dataclass(frozen=True)
class SynthesisRequest:
    """What is wanted. parents: {name: source} for the mutation mode; empty: composed tasks are mutated.

    constraint: for the constraint mode, in words; "" takes turns through `constrain.PRESETS`. llm_share: of the drafts
    that the writer makes; a constraint that the vocabulary cannot read is left to the writer altogether.
    """

    count: int
    modes: tuple[Mode, ...] = ("composition",)
    seed: int = 0
    parents: Mapping[str, str] = field(default_factory=dict)
    constraint: str = ""
    writer: DraftWriter | None = None
    llm_share: float = 0.5

    def settings(self) -> dict[str, object]:
        """What decides the tasks, for the manifest; the count may change from one call to the next."""
        parents = content_key("parents", *(text for pair in sorted(self.parents.items()) for text in pair))
        share = self.llm_share if self.writer is not None else 0.0
        return {
            "seed": self.seed,
            "modes": list(self.modes),
            "parents": parents if self.parents else "",
            "constraint": self.constraint,
            "llm_share": share,
        }

    def wanted(self) -> tuple[constrain.TaskConstraints, tuple[str, ...]]:
        """The constraint as read. BadInput where words are left over and no model is there to read them."""
        found, unknown = constrain.read_wanted(self.constraint)
        if unknown and self.writer is None:
            raise BadInput(
                f"the constraint has words that the engine does not know: {', '.join(unknown)}",
                hint="docs/synth.md has the vocabulary; with --llm a model reads it",
            )
        return found, unknown


@dataclass(frozen=True)
class _Seen:
    """What a worker found of one index."""

    tries: tuple[DroppedDraft, ...] = ()
    made: Made | None = None


class Hygiene(Protocol):
    """Why a finished task is not wanted beside those taken so far: (stage, why), or None. It remembers what it took."""

    def __call__(self, made: Made) -> tuple[str, str] | None:
        """Called in order of index; a task it does not object to is taken."""
        ...


@contextmanager
def open_zygotes(count: int, *, unsafe: bool = False) -> Iterator[list[Zygote]]:
    """A warm zygote for each worker."""
    with ExitStack() as stack:
        opened = [stack.enter_context(Zygote(WARM, unsafe=unsafe, name=f"task host {n}")) for n in range(count)]
        for zygote in opened:
            zygote.start()
        yield opened


def synthesise(
    plan: SynthesisRequest,
    store: SynthStore,
    zygotes: Sequence[Zygote],
    *,
    listener: Listener = silent,
    overlaps: Callable[[Made], str] | None = None,
) -> list[Made]:
    """Go on until the store holds `plan.count` tasks, with one worker a zygote; the tasks.

    overlaps: why a task is too close to something held elsewhere, or ""; called from several threads. Fewer tasks come
    back where FRUITLESS indices in a row came to nothing. Raises BadInput for a constraint nobody can read, and the
    infrastructure's errors; the zygotes are closed then.
    """
    drafter = _Drafter(plan)
    hygiene = _Hygiene(store.made)
    fruitless, began, before = 0, time.monotonic(), len(store.made)
    with _Workers(drafter, zygotes, overlaps) as pool:
        ahead: deque[Future[_Seen]] = deque()
        while len(store.made) < plan.count and fruitless < FRUITLESS:
            # never more than may still be taken: a model's answer that is not needed costs money
            while len(ahead) < min(AHEAD * len(zygotes), plan.count - len(store.made)):
                ahead.append(pool.submit(store.next_index + len(ahead)))
            index, seen = store.next_index, ahead.popleft().result()
            dropped = _turn(drafter, hygiene, index, seen)
            if dropped is None and seen.made is not None:
                store.take(index, seen.made, seen.tries)
            else:
                store.drop(index, seen.tries + ((dropped,) if dropped else ()))
            fruitless = fruitless + 1 if dropped or seen.made is None else 0
            _tell(listener, plan, store, seen, dropped, (len(store.made) - before, time.monotonic() - began))
    store.sync(complete=len(store.made) >= plan.count)
    return store.made


def _turn(drafter: _Drafter, hygiene: Hygiene, index: int, seen: _Seen) -> DroppedDraft | None:
    """Why a task that passed everything by itself is dropped after all."""
    if seen.made is None:
        return None
    wanted = drafter.wanted(index)
    if wanted is not None and (why := constrain.satisfies(seen.made, wanted)):
        return DroppedDraft(draft=seen.made.draft, stage="constraint", why=why)
    found = hygiene(seen.made)
    return None if found is None else DroppedDraft(draft=seen.made.draft, stage=found[0], why=found[1])


def _tell(
    listener: Listener,
    plan: SynthesisRequest,
    store: SynthStore,
    seen: _Seen,
    dropped: DroppedDraft | None,
    pace: tuple[int, float],
) -> None:
    last = dropped or (seen.tries[-1] if seen.made is None else None)
    name = last.draft.name if last else seen.made.draft.name if seen.made else ""
    data = {
        "done": len(store.made),
        "count": plan.count,
        "dropped": sum(store.dropped.values()),
        "task": name,
        "stage": last.stage if last else "",
        "why": last.why if last else "",
        "made": pace[0],
        "seconds": pace[1],
    }
    listener("synth", data)


# ---------------------------------------------------------------- drafts


class _Drafter:
    """The draft of an index."""

    def __init__(self, plan: SynthesisRequest) -> None:
        self.plan = plan
        constrained = "constraint" in plan.modes and plan.constraint
        self._asked, self._unread = plan.wanted() if constrained else (constrain.TaskConstraints(), ())
        self._presets = [constrain.read_wanted(text)[0] for text in constrain.PRESETS]

    def mode(self, index: int) -> Mode:
        return self.plan.modes[index % len(self.plan.modes)]

    def wanted(self, index: int) -> constrain.TaskConstraints | None:
        """What the finished task is held to; None outside the constraint mode."""
        if self.mode(index) != "constraint":
            return None
        return self._asked if self.plan.constraint else self._presets[self._preset(index)]

    def draw(self, index: int, zygote: Zygote) -> Written:
        """The draft of an index, by whichever mind's turn it is."""
        rng, mode = self._rng(index), self.mode(index)
        chosen = rng.random() < self.plan.llm_share or (mode == "constraint" and bool(self._unread))
        if self.plan.writer is not None and chosen:
            return self._written(index, mode, zygote)
        if mode == "mutation":
            return self._mutated(index, rng)
        try:
            return self._composed(index, rng, mode, self.wanted(index)), ()
        except BadInput as error:
            if self.plan.constraint:  # nothing fits what the user asked for: no other index will do better
                raise
            draft = Draft(name=f"draft_{index}", source="", mode=mode, seed=self.plan.seed)
            return None, (DroppedDraft(draft=draft, stage="compose", why=error.message),)

    def _rng(self, *parts: object) -> random.Random:
        return random.Random(content_key("synth", str(self.plan.seed), *map(str, parts)))

    def _preset(self, index: int) -> int:
        return (index // len(self.plan.modes)) % len(self._presets)

    def _composed(self, index: int, rng: random.Random, mode: Mode, wanted: constrain.TaskConstraints | None) -> Draft:
        from hipwright.synth.compose import compose, lead_of

        lead = "" if wanted is not None else lead_of(index // len(self.plan.modes))
        draft = compose(rng, wanted=wanted, lead=lead)
        detail = self._constraint(index) if mode == "constraint" else draft.detail
        return replace(draft, mode=mode, detail=detail)

    def _constraint(self, index: int) -> str:
        if self.mode(index) != "constraint":
            return ""
        return self.plan.constraint or constrain.PRESETS[self._preset(index)]

    def _mutated(self, index: int, rng: random.Random) -> Written:
        """One change or two to a given task, kinds of change being equally likely."""
        name, source = self._parent(index, rng)
        text, kind = source, "same"
        details: list[str] = []
        for _ in range(rng.randint(1, CHANGES)):
            changes = mutate.mutations(text, rng)
            if changes:
                kind = rng.choice(sorted({change.kind for change in changes}))
                change = rng.choice([one for one in changes if one.kind == kind])
                text, details = change.source, [*details, change.detail]
        draft = Draft(
            name=f"{name}_{kind}_{content_key(text)[:4]}",
            source=text,
            mode="mutation",
            seed=self.plan.seed,
            parents=(same_task(source),),
            detail=f"{name}: {'; '.join(details)}",
        )
        return (
            (draft, ()) if details else (None, (DroppedDraft(draft=draft, stage="mutation", why="nothing to change"),))
        )

    def _parent(self, index: int, rng: random.Random) -> tuple[str, str]:
        if self.plan.parents:
            name = rng.choice(sorted(self.plan.parents))
            return name, self.plan.parents[name]
        composed = self._composed(index, self._rng("parent", index), "composition", None)
        return composed.name, composed.source

    def _written(self, index: int, mode: Mode, zygote: Zygote) -> Written:
        assert self.plan.writer is not None
        parents = dict([self._parent(index, self._rng("llm parent", index))]) if mode == "mutation" else {}
        draft, tries = self.plan.writer(index, mode, parents, self._constraint(index), zygote)
        keys = tuple(same_task(source) for source in parents.values())
        return replace(draft, seed=self.plan.seed, parents=keys) if draft is not None else None, tries


# ---------------------------------------------------------------- hygiene


class _Hygiene:
    """No task twice: by name, by canonical graph, by text."""

    def __init__(self, made: Sequence[Made]) -> None:
        from hipwright.synth.near import Near

        self._near = Near()
        self._graphs = {one.graph: one.draft.name for one in made}
        self._names = {one.draft.name for one in made}
        for one in made:
            self._near.add(one.draft.name, one.draft.source)

    def __call__(self, made: Made) -> tuple[str, str] | None:
        name = made.draft.name
        if name in self._names:
            return "duplicate", "a task of that name was taken"
        if (twin := self._graphs.get(made.graph)) is not None:
            return "duplicate", f"the same graph as {twin}"
        if (twin := self._near.add(name, made.draft.source)) is not None:
            return "near duplicate", f"nearly the text of {twin}"
        self._names.add(name)
        self._graphs[made.graph] = name
        return None


# ---------------------------------------------------------------- workers


class _Workers:
    """A thread for each zygote; the work is done in the zygotes' processes."""

    def __init__(self, drafter: _Drafter, zygotes: Sequence[Zygote], overlaps: Callable[[Made], str] | None) -> None:
        self._drafter, self._zygotes, self._overlaps = drafter, zygotes, overlaps
        self._free: SimpleQueue[Zygote] = SimpleQueue()
        self._ending = threading.Event()
        for zygote in zygotes:
            self._free.put(zygote)
        self._pool = ThreadPoolExecutor(max_workers=len(zygotes), thread_name_prefix="synth")

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._ending.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        if kind is not None:  # an interrupt does not wait for what is under way: it ends with its process
            for zygote in self._zygotes:
                zygote.close()
        self._pool.shutdown(wait=True)

    def submit(self, index: int) -> Future[_Seen]:
        return self._pool.submit(self._work, index)

    def _work(self, index: int) -> _Seen:
        zygote = self._free.get()
        try:
            draft, tries = self._drafter.draw(index, zygote)
            if draft is None:
                return _Seen(tries)
            try:
                made = self._finished(draft, zygote)
            except TaskRefused as refused:
                return _Seen((*tries, DroppedDraft(draft=draft, stage=refused.stage, why=refused.message[:500])))
            if self._overlaps is not None and (why := self._overlaps(made)):
                return _Seen((*tries, DroppedDraft(draft=draft, stage="overlap", why=why)))
            return _Seen(tries, made)
        finally:
            self._free.put(zygote)

    def _finished(self, draft: Draft, zygote: Zygote) -> Made:
        """The task, examined and described. A worker of ours that dies is given one more chance."""
        from hipwright.synth.graph_hash import graph_hash

        try:
            examined = examine(draft.name, draft.source, zygote, seed=_CHECK_SEED)
        except WorkerError:
            if self._ending.is_set():
                raise
            examined = examine(draft.name, draft.source, zygote, seed=_CHECK_SEED)
        made_by = {"made_by": f"hipwright {__version__}", "mode": draft.mode, "mind": draft.mind, "seed": draft.seed}
        return describe(draft, examined, graph=graph_hash(examined.graph), provenance=made_by)
