"""Chooses the shapes at which a program is judged besides those of the plan of its task.

Two reasons: a side of a comparison of sizes that no planned workload takes, and sizes that nobody can know in advance,
drawn from the oracle's secret seed on the axes that the program's guards leave free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from hipwright.program import Parsed
from hipwright.records import Workload
from hipwright.task.sizes import Shapes, SharedSize, elements
from hipwright.verify.admitted.plan_tracer import PlanTracer
from hipwright.verify.admitted.side_search import SideSearch
from hipwright.verify.admitted.size_space import SizeSpace
from hipwright.verify.admitted.trace import ShapeTrace, Side
from hipwright.verify.oracle import Oracle

MOST_SHAPES = 4  # chosen for one program
LARGEST_ELEMENTS = 1 << 20  # of a chosen shape's inputs and outputs
_DRAWN_ELEMENTS = 1 << 14  # of a drawn shape's inputs
_DRAWN_AXES = 3  # of a program that accepts shapes derived for its task: each is larger once, beside odd sizes
_DRAWN_ALONE = 8  # for one that accepts the given sizes of some axes only
_SEARCH = (60, 240)  # shapes that are traced for one program: the least, the most
_SEARCH_WORK = 6000  # comparisons of kernels times shapes that are traced
_PROPOSALS = 4  # shapes of one side that the reference is asked about
_PACKS = (4, 8, 16, 32)
TOO_LONG = "predicted to take too long here"


@dataclass(frozen=True)
class UnjudgedSide:
    """A side that the guards admit and no judged shape takes.

    shapes: some that take it; why: not judged; own: the task itself takes it.
    """

    side: Side
    shapes: Shapes
    why: str
    own: bool = False

    def to_dict(self) -> dict[str, object]:
        """As a verdict has it."""
        condition, outcome = self.side
        return {
            "where": condition.where,
            "line": condition.line,
            "condition": condition.text,
            "outcome": outcome,
            "shapes": [list(shape) for shape in self.shapes],
            "why": self.why,
        }


@dataclass
class AdmittedShapes:
    """The shapes that one program's guards admit, and which of them are judged."""

    oracle: Oracle
    tracer: PlanTracer
    space: SizeSpace
    traces: dict[Shapes, ShapeTrace] = field(default_factory=dict)
    refused: dict[Side, UnjudgedSide] = field(default_factory=dict)

    @classmethod
    def of(cls, parsed: Parsed, knobs: Mapping[str, int], oracle: Oracle) -> AdmittedShapes | None:
        """None where the task's sizes cannot change, or KernelBench's own rule is asked for."""
        space = oracle.sizes.space()
        if oracle.kernelbench or not space.symbols:
            return None
        first = oracle.planned()[0].workload.name
        tracer = PlanTracer(parsed, knobs, oracle.given_inputs(first), oracle.state)
        return cls(oracle, tracer, space)

    def follow(self, shapes: Shapes) -> ShapeTrace:
        """What the plan does at some shapes."""
        if shapes not in self.traces:
            self.traces[shapes] = self.tracer.follow(shapes)
        return self.traces[shapes]

    def refuses(self, workload: Workload) -> bool:
        """Whether a guard declines a workload."""
        return bool(self.follow(shapes_of(workload)).refused)

    def sides(self, workloads: Iterable[Workload]) -> set[Side]:
        """The sides that some workloads take."""
        return set().union(*(self.follow(shapes_of(one)).sides for one in workloads))

    # ---------------------------------------------------------------- both sides of every comparison

    def choose(
        self,
        thorough: Iterable[Workload],
        plain: Iterable[Workload],
        judges: Callable[[Workload], bool],
        affordable: Callable[[Workload], bool],
    ) -> list[Workload]:
        """Workloads that take further sides, to be run with adversarial values.

        thorough: workloads that run with such values; plain: those that run without. judges: whether a workload can
        be evidence; affordable: whether it can be run in time.
        """
        thorough, plain = list(thorough), [one for one in plain if not self.follow(shapes_of(one)).refused]
        covered = self.sides(thorough)
        chosen: list[Workload] = []
        for workload in sorted(plain, key=lambda one: elements(shapes_of(one))):
            gained = self.sides([workload]) - covered
            if gained and elements(shapes_of(workload)) <= LARGEST_ELEMENTS:
                covered |= gained
                chosen.append(workload)
        return chosen + self._solved(covered, [*thorough, *plain], judges, affordable)

    def _solved(
        self,
        covered: set[Side],
        known: list[Workload],
        judges: Callable[[Workload], bool],
        affordable: Callable[[Workload], bool],
    ) -> list[Workload]:
        """Workloads for sides that are not covered yet; the sides without one are kept in `refused`."""
        found: list[Workload] = []
        bases = [shapes_of(one) for one in known]
        bases += [self.space.given] if self.space.given not in bases else []
        missing = self._missing(covered, bases)
        wanted = {condition for condition, _ in missing}
        comparisons = 1 + sum(map(len, self.tracer.kernels.values()))
        budget = min(max(_SEARCH_WORK // comparisons, _SEARCH[0]), _SEARCH[1])
        search = SideSearch(self.space, lambda shapes: self.tracer.follow(shapes, wanted), budget)
        for side in missing:
            if side in covered:
                continue
            proposals = search.shapes_for(side, bases)
            workload, refusal = self._first_accepted(proposals, len(found), judges, affordable)
            if workload is not None:
                found.append(workload)
                bases.append(shapes_of(workload))
                covered |= self.sides([workload])
            elif refusal is not None:
                self.refused[side] = UnjudgedSide(side, *refusal)
        return found

    def decline(self, workload: Workload, why: str) -> None:
        """Keeps the sides of a workload that is not run."""
        shapes = shapes_of(workload)
        for side in self.follow(shapes).sides:
            self.refused.setdefault(side, UnjudgedSide(side, shapes, why))

    def _missing(self, covered: set[Side], bases: list[Shapes]) -> list[Side]:
        """The sides of reached comparisons that are not covered, in the order of the program."""
        reached = {one: None for shapes in bases for one, seen in self.follow(shapes).compared.items() if seen.sized}
        sides = [(one, outcome) for one in reached for outcome in (True, False)]
        return [side for side in sides if side not in covered]

    def _first_accepted(
        self,
        proposals: Iterator[Shapes],
        chosen: int,
        judges: Callable[[Workload], bool],
        affordable: Callable[[Workload], bool],
    ) -> tuple[Workload | None, tuple[Shapes, str] | None]:
        """The workload of the first shapes that can be run; else the first that are too large, and why.

        Shapes that the reference refuses need no judging: it says nothing about them.
        """
        refusal = None
        for shapes in islice(proposals, _PROPOSALS):
            if chosen >= MOST_SHAPES:
                return None, (shapes, f"{MOST_SHAPES} shapes were chosen already")
            workload, cost = self.oracle.sizes.at(shapes, LARGEST_ELEMENTS)
            if workload is not None and not affordable(workload):
                refusal = refusal or (shapes, TOO_LONG)
            elif workload is not None and judges(workload):
                return workload, None
            if cost > LARGEST_ELEMENTS:
                refusal = refusal or (shapes, f"{cost} elements of inputs and outputs are too many to run here")
        return None, refusal

    # ---------------------------------------------------------------- sizes nobody knows in advance

    def drawn(self, base: Workload, known: Iterable[str]) -> list[Workload]:
        """Workloads of secret sizes on the axes that the guards leave free. base: one that the program accepts."""
        start, names = shapes_of(base), set(known)
        found: list[Workload] = []
        free = [s for s in self.space.symbols if self._moves(start, s)]
        alone = base.origin != "derived"
        for kinds in self._draws(free, alone):
            if len(found) >= (_DRAWN_ALONE if alone else 1 + min(len(free), _DRAWN_AXES)):
                break
            shapes = self.space.put(start, {symbol: self._drawn_size(symbol, kind) for symbol, kind in kinds.items()})
            if elements(shapes) > max(_DRAWN_ELEMENTS, 2 * elements(start)) or self.follow(shapes).refused:
                continue
            workload = self.oracle.sizes.at(shapes, LARGEST_ELEMENTS)[0]
            if workload is not None and workload.name not in names:
                names.add(workload.name)
                found.append(workload)
        return found

    def _moves(self, start: Shapes, symbol: SharedSize) -> bool:
        sizes = {self._drawn_size(symbol, kind) for kind in ("odd", "pack", "again")}
        return any(not self.follow(self.space.put(start, {symbol: size})).refused for size in sizes)

    def _draws(self, free: list[SharedSize], alone: bool) -> list[dict[SharedSize, str]]:
        if not free:
            return []
        turn = self.oracle.seed_of("axis") % len(free)
        order = [*free[turn:], *free[:turn]]
        odd, pack = dict.fromkeys(free, "odd"), dict.fromkeys(free, "pack")
        single = [{symbol: kind} for kind in ("odd", "pack") for symbol in order]
        larger = [{other: "larger" if other == symbol else "few" for other in free} for symbol in order]
        if alone:
            return [odd, pack, *({symbol: "one"} for symbol in order), *larger, *single]
        return [odd, *larger, {order[0]: "pack"}, *single, pack]

    def _drawn_size(self, symbol: SharedSize, kind: str) -> int:
        if kind == "one":
            return 1
        number = self.oracle.seed_of("size", symbol.size, symbol.places, kind)
        if kind == "few":
            return min(symbol.size, 2 + number % 2)
        if kind == "larger":
            return symbol.size * (2 + number % 3) + number // 8 % symbol.size
        most = max(min(symbol.size, 97), 9)
        if kind == "pack":
            pack = _PACKS[number % len(_PACKS)]
            return pack * (1 + number // 8 % max(most // pack, 1))
        return 3 + number % (most - 2) | 1

    # ---------------------------------------------------------------- what is left

    def unjudged(self, judged: Iterable[Workload], own: Iterable[Workload]) -> list[UnjudgedSide]:
        """The sides that the guards admit and no judged workload takes. own: the task's own workloads."""
        covered = self.sides(judged)
        left = dict(self.refused)
        for workload in own:
            shapes = shapes_of(workload)
            for side in self.follow(shapes).sides:
                left[side] = UnjudgedSide(side, shapes, "the task's own shapes were not run here", own=True)
        return [one for side, one in left.items() if side not in covered]


def shapes_of(workload: Workload) -> Shapes:
    """The shapes of a workload's inputs."""
    return tuple(tuple(spec.shape) for spec in workload.specs)
