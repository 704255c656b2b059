"""What the engine gives up when its first answer is refused, or slower than eager: operators become library calls.

The kernel that the evidence names is given up first. Where none is named, the guilty group is found by bisection: the
first groups as kernels, the others as library calls. The last steps are every operator as a library call, a plan
written without the engine's lowering, and programs for the captured sizes alone. A first answer that a GPU finds slower
than eager is followed by its forms with products, then all operators, left to the library: the fastest is the answer.
The steps are a function of the run's trials, so a resumed run repeats them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hipwright.engine.knobs import EVERY_OPERATOR, GIVEN_UP, OTHER_SIZES, PLAIN_PLAN
from hipwright.records import Evaluation
from hipwright.search.view import FALLBACK, SearchView, Trial

NAMED, ROUNDS = 6, 3
"""Steps by evidence that names a kernel, and bisections, before all operators are given up."""
NOTHING_LEFT = "nothing is left to give up"
"""Why no program follows the last step. A step whose program the engine cannot write is followed by the next one."""
SLOWER_WHY = "slower than eager"
"""How the reason of such a step begins."""
SLOWER = 0.98
"""The speedup over eager below which a first answer is slower, where the whole interval is below 1 besides."""
PRODUCTS = ("linear", "mm", "bmm", "addmm", "baddbmm", "addbmm", "matmul", "conv", "scaled_dot_product", "einsum")
"""How the names of nodes begin that are sums of products over sizes of the task."""
Explain = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""choices -> the engine's explanation of the program by them."""


@dataclass(frozen=True)
class FallbackStep:
    """One program to try. given_up: the choice's value; closing: a program that passes is the answer, not a probe."""

    given_up: str
    why: str
    closing: bool = True


@dataclass(frozen=True)
class StepOutcome:
    """What became of a program. guilty: nodes of the kernel that the evidence names; "" in why for one that passed.

    slow: it took too long, or longer than eager.
    """

    passed: bool
    guilty: frozenset[str] = frozenset()
    why: str = ""
    slow: bool = False


def steps(
    first: StepOutcome, groups: Sequence[frozenset[str]], left: Collection[str] = ()
) -> Generator[FallbackStep, StepOutcome, None]:
    """Steps until a closing one passes. groups: the nodes of each kernel of the refused program, in order. left: nodes
    that every program leaves to the library, as the engine cannot write them.

    A program that takes too long where no kernel is named, or one was given up already, is no single group's fault: its
    products, where its time goes, are given up together.
    """
    given = set(left)
    outcome = first
    products = frozenset().union(*(group for group in groups if any(map(_is_product, group))))
    for turn in range(NAMED):
        more, why = outcome.guilty - given, outcome.why
        if outcome.slow and (turn or not more) and products - given:
            more, why = products - given, f"time is the sum of products: {why}"[:300]
        if not more:
            break
        given |= more
        outcome = yield FallbackStep(spelled(given), why)
        if outcome.passed:
            return
    for _ in range(ROUNDS):
        kept = [group for group in groups if group - given]
        if not kept:
            break
        low, high = 0, len(kept)
        while high - low > 1:
            middle = (low + high) // 2
            rest = frozenset().union(*kept[middle:])
            outcome = yield FallbackStep(spelled(given | rest), "bisection: no kernel is named", closing=False)
            low, high = (middle, high) if outcome.passed else (low, middle)
        given |= kept[low]
        outcome = yield FallbackStep(spelled(given), f"bisection names {', '.join(sorted(kept[low]))}")
        if outcome.passed:
            return
    outcome = yield FallbackStep(EVERY_OPERATOR, "no single group is guilty")
    if not outcome.passed:
        outcome = yield FallbackStep(PLAIN_PLAN, f"the library's form is refused too: {outcome.why}"[:200])
    for given_up in (OTHER_SIZES, spelled({EVERY_OPERATOR, OTHER_SIZES})):
        if not outcome.passed:
            outcome = yield FallbackStep(given_up, f"it may hold at the captured sizes alone: {outcome.why}"[:200])


def faster_forms(
    groups: Sequence[frozenset[str]], left: Collection[str] = ()
) -> Generator[FallbackStep, StepOutcome, None]:
    """Steps for a program that is right, but slower than eager: until one is not. groups, left: as for `steps`."""
    products = frozenset().union(*(group for group in groups if any(map(_is_product, group))))
    if products and any(group - products for group in groups):
        outcome = yield FallbackStep(spelled({*left, *products}), f"{SLOWER_WHY}: products")
        if outcome.passed and not outcome.slow:
            return
    yield FallbackStep(EVERY_OPERATOR, SLOWER_WHY)


def _is_product(node: str) -> bool:
    return node.removeprefix("native_").startswith(PRODUCTS)


def spelled(nodes: Collection[str]) -> str:
    """Names of nodes as a value of the choice `given_up`."""
    return ",".join(sorted(nodes))


class Fallback:
    """The next step of a run. explain: of choices; nodes: the graph's operators by name; given_up: what every program
    gives up, a value of that choice."""

    def __init__(self, explain: Explain, nodes: Iterable[str], given_up: str = "") -> None:
        self._explain = explain
        self._nodes = tuple(nodes)
        self._left = frozenset(given_up.split(",")).intersection(self._nodes)
        self._known: dict[str, list[tuple[str, frozenset[str]]]] = {}

    def next(self, view: SearchView) -> FallbackStep | None:
        """The step after those that the view holds; None where nothing is left to give up."""
        first = first_refused(view) or first_slower(view)
        if first is None:
            return None
        kernels = self._kernels(first.proposed.choices)
        groups = list(dict.fromkeys(nodes for _, nodes in kernels if nodes))
        ladder = (
            faster_forms(groups, self._left) if first.passed else steps(self._outcome(first, view), groups, self._left)
        )
        try:
            step = next(ladder)
            for trial in view.trials:
                if trial.proposed.expansion.operator == FALLBACK:
                    step = ladder.send(self._outcome(trial, view))
        except StopIteration:
            return None
        return step

    def _outcome(self, trial: Trial, view: SearchView) -> StepOutcome:
        evaluation = _judged(trial, view)
        if evaluation is None:
            return StepOutcome(False, why=trial.proposed.error)
        if evaluation.passed:
            return StepOutcome(True, slow=is_slower(evaluation))
        kernels = dict(self._kernels(trial.proposed.choices))
        why = f"{evaluation.status}: {evaluation.message}"[:300]
        guilty = kernels.get(named_kernel(evaluation, list(kernels)), frozenset())
        return StepOutcome(False, guilty, why, slow=evaluation.status == "timeout")

    def _kernels(self, choices: Mapping[str, Any]) -> list[tuple[str, frozenset[str]]]:
        """Names of a program's kernels with the graph's nodes that each computes."""
        key = repr(sorted(choices.items()))
        if key not in self._known:
            try:
                kernels = self._explain(choices)["kernels"]
            except Exception:  # the engine's own fault: bisection needs no names
                kernels = []
            named = [
                (one["name"], frozenset(n for label in one["nodes"] for n in self._named(label))) for one in kernels
            ]
            self._known[key] = named
        return self._known[key]

    def _named(self, label: str) -> list[str]:
        """The nodes that an explanation's label stands for: those it equals, else the longest it begins with."""
        exact = [n for n in self._nodes if label in (n, n.removeprefix("native_"))]
        if exact:
            return exact
        begun = [n for n in self._nodes if label.startswith(f"{n.removeprefix('native_')}_")]
        return [max(begun, key=len)] if begun else []


def first_refused(view: SearchView) -> Trial | None:
    """The latest of the engine's first answers, where it was refused by its own fault."""
    found = [
        t
        for t in view.trials
        if t.proposed.expansion.operator == "default" and t.evaluation is not None and t.evaluation.fault == "candidate"
    ]
    return found[-1] if found else None


def first_slower(view: SearchView) -> Trial | None:
    """The latest of the engine's first answers, where a GPU found it slower than eager."""
    found = [t for t in view.trials if t.proposed.expansion.operator == "default" and t.evaluation is not None]
    return found[-1] if found and found[-1].evaluation and is_slower(found[-1].evaluation) else None


def is_slower(evaluation: Evaluation) -> bool:
    """Whether a verified program is certainly slower than eager on a GPU; a simulated one's times say nothing."""
    timings = [result.timing for result in evaluation.targets.values() if result.timing is not None]
    eager = [timing.versus["eager"] for timing in timings if "eager" in timing.versus and not timing.simulated]
    return evaluation.passed and any(versus.speedup < SLOWER and versus.interval[1] < 1 for versus in eager)


def owed(view: SearchView) -> bool:
    """Whether an answer is owed: the engine's first one was refused and nothing passed, or it is slower than eager and
    so is what was tried since; and steps are left.
    """
    taken = [t for t in view.trials if t.proposed.expansion.operator == FALLBACK]
    if first_refused(view) is None and first_slower(view) is not None:
        found = any(t.evaluation is not None and t.passed and not is_slower(t.evaluation) for t in view.trials)
        return not found and EVERY_OPERATOR not in (t.proposed.notes.get(GIVEN_UP) for t in taken)
    if any(t.passed for t in view.trials if t not in taken) or first_refused(view) is None:
        return False
    if not taken:
        return True
    last = taken[-1]
    judged = _judged(last, view)
    passed = judged is not None and judged.passed
    return not (last.proposed.error == NOTHING_LEFT or (passed and last.proposed.notes.get("closing")))


def refuted(view: SearchView, again: Mapping[int, Evaluation]) -> SearchView:
    """The view in which programs that failed a second verification did not pass. again: its results by number."""

    def known(trial: Trial) -> Trial:
        found = again.get(trial.number)
        return trial if found is None or found.passed else replace(trial, evaluation=found)

    return replace(view, trials=tuple(known(trial) for trial in view.trials))


def _judged(trial: Trial, view: SearchView) -> Evaluation | None:
    """A trial's evaluation; a duplicate's is that of the first trial of its program."""
    same = trial.proposed.duplicate_of
    if same is not None:
        trial = next((one for one in view.trials if one.number == same), trial)
    return trial.evaluation


def named_kernel(evaluation: Evaluation, kernels: Sequence[str]) -> str:
    """The kernel that the evidence of a refused program names, "" for none."""
    for result in evaluation.targets.values():
        verdict = result.verdict
        if verdict is None or verdict.passed:
            continue
        if found := _kernel_called(evidence_kernel(verdict.evidence), kernels):
            return found
    return ""


def evidence_kernel(evidence: Mapping[str, Any]) -> str:
    """The function that a refused verdict's evidence names, "" for none."""
    note = evidence.get("note")
    return str(evidence.get("kernel") or (note.get("kernel") if isinstance(note, Mapping) else "") or "")


def _kernel_called(name: str, kernels: Sequence[str]) -> str:
    """The kernel that a function of a program belongs to: `<kernel>`, `<kernel>_exact`, `<kernel>_body`."""
    fitting = [k for k in kernels if name == k or name.startswith(f"{k}_")]
    return max(fitting, key=len, default="")


def notes(step: FallbackStep) -> dict[str, Any]:
    """A step as a proposal's notes."""
    return {"fallback": step.why, GIVEN_UP: step.given_up, "closing": step.closing}
