"""Computes the expectation for one set of inputs from runs of the reference: in its own dtypes, in fp64, and in fp64 on
inputs nudged in several ways.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from hipwright.errors import HipwrightError, InfrastructureError
from hipwright.held import held
from hipwright.records import TolerancePolicy
from hipwright.task import TaskHandle
from hipwright.task.nudges import NUDGES, Nudge
from hipwright.tensors import HostTensor, Tree, map_tensors, tensor_leaves
from hipwright.verify import inputs as draws
from hipwright.verify.blockwise.redraws import decomposed_errors, is_concentrated, redrawn_errors
from hipwright.verify.expected import F64, Expected, IndexRule, Rule, rules, zip_rules
from hipwright.verify.inputs.exactness import all_exact, whole_numbers
from hipwright.verify.inputs.written import buffers_of, is_input, raw_bits, state_before, state_name, stays
from hipwright.verify.sequences.carried_state import BuffersAfter, ReferenceStates, same_bits
from hipwright.verify.tolerance import (
    UNIT,
    computed,
    exact_rule,
    find_gather,
    kernelbench_rule,
    reduction_length,
    strict_rule,
    unchanged_rule,
)

# forwards from which on BESIDE nudged runs are made beside the other runs of a case
LONG_RUN_S, BESIDE = 0.05, 2
NATIVE_SLACK = 2.0  # factor on c where the expectation is the baseline itself


@dataclass
class Expectations:
    """Computes the expectations of one task, by its host alone.

    nudge_seed: draws how inputs and state are nudged. draw: the seed under which the reference's random operators draw;
    None where it has none.
    """

    handle: TaskHandle
    policy: TolerancePolicy
    nudge_seed: int
    draw: int | None = None
    _nudged: dict[int, tuple[Tree, ...]] = field(default_factory=dict)

    def drawing(self, seed: int | None) -> Expectations:
        """The same under another seed of the random operators."""
        return replace(self, draw=seed)

    def _reference(
        self, inputs: Tree, state: Tree, **how: Any
    ) -> tuple[Tree, dict[str, HostTensor], Mapping[str, Any]]:
        return self.handle.reference(inputs, state, draw=self.draw, **how)

    def _generator(self, info: Mapping[str, Any]) -> str:
        """The digest that a program's generator must have after the call; "" where the reference does not draw."""
        return "" if self.draw is None else str(info.get("generator", ""))

    def of(
        self,
        inputs: Tree,
        state: Tree,
        redraw: Callable[[int], Tree] | None = None,
        *,
        near_constant: bool = False,
        still: Sequence[float] = (),
    ) -> Expected:
        """The expectation for these inputs.

        redraw: further inputs of their kind, for leaves of few elements. near_constant: as in `tolerance.floor`. still:
        as in `inputs.nudge`.
        """
        return self.after(inputs, self.states(state), redraw, near_constant=near_constant, still=still)[0]

    def states(self, state: Tree) -> ReferenceStates:
        """The states that the runs of the reference start from."""
        if self.policy.mode == "kernelbench":
            return ReferenceStates(state, state, ())
        if id(state) not in self._nudged:  # states are kept alive, so an id belongs to one state
            nudged = (draws.nudge_state(state, self._seed_of_nudge(way), way) for way in NUDGES)
            self._nudged[id(state)] = tuple(nudged)
        return ReferenceStates(state, state, self._nudged[id(state)])

    def _seed_of_nudge(self, way: Nudge) -> int:
        """Of a state; the next one is the inputs'. The same for both signs of a size."""
        return self.nudge_seed + 100 * (round(abs(way.size)) - 1)

    def after(
        self,
        inputs: Tree,
        states: ReferenceStates,
        redraw: Callable[[int], Tree] | None = None,
        *,
        near_constant: bool = False,
        still: Sequence[float] = (),
    ) -> tuple[Expected, BuffersAfter]:
        """The expectation on these states, and the buffers afterwards."""
        state = states.native
        native, after, info = self._reference(inputs, state, dtype="native")
        aliases = alias_pairs(info)
        if self.policy.mode == "kernelbench":
            tree = zip_rules("output", (native,), lambda p, n: kernelbench_rule(p, n, self.policy))
            kept = {path: kernelbench_rule(state_name(path), t, self.policy) for path, t in after.items()}
            made = Expected({"outputs": tree, "buffers": kept}, aliases, generator=self._generator(info))
            return made, BuffersAfter(buffers_of(after), buffers_of(after), ())
        close = narrowest(inputs, state)  # equals in a computed tensor: the nudge may move them apart again
        exact, exact_after, dtype, runs = self._in_float64(inputs, states, info, close, still)
        weights = tensor_leaves(state["params"])
        # without float64 the baseline is its own expectation, so its error is unknown
        c = self.policy.c * (NATIVE_SLACK if dtype == "native" else 1.0)

        redrawn: dict[int, F64] = {}
        if dtype != "native":
            if redraw is not None:
                redrawn = redrawn_errors(self._reference, native, state, self.nudge_seed, redraw)
            short = float(info.get("seconds") or 0.0) < LONG_RUN_S
            if info.get("decomposes") or (short and is_concentrated(native, exact, [r.outputs for r in runs], c)):
                more = decomposed_errors(self._reference, native, exact, inputs, state, self.nudge_seed, still)
                redrawn |= {key: np.maximum(error, redrawn.get(key, 0.0)) for key, error in more.items()}

        def rule(path: str, n: HostTensor, e: HostTensor, *m: HostTensor) -> Rule:
            length = reduction_length(tensor_leaves(inputs), weights, n.numel)
            return strict_rule(
                path, n, e, m, c=c, reduction=length, redrawn=redrawn.get(id(n)), near_constant=near_constant
            )

        tree = zip_rules("output", (native, exact, *(one.outputs for one in runs)), rule)
        tree = _with_gather(tree, [t.to_f64() for t in tensor_leaves(inputs) if t.is_float])

        def state_rule(path: str, before: HostTensor) -> Rule:
            name, left = state_name(path), after[path]
            if same_bits(left, before):
                return unchanged_rule(name, left)
            made = rule(name, left, exact_after[path], *(one.after[path] for one in runs))
            if not is_input(path):
                return made
            others = [(inputs, exact_after), *((one.inputs, one.after) for one in runs)]
            return replace(made, stays=stays(path, (before, left), others), before=raw_bits(before))

        buffers = {path: state_rule(path, before) for path, before in state_before(after, inputs, state).items()}
        drawn = self._generator(info)
        found = Expected({"outputs": tree, "buffers": buffers}, aliases, reference_dtype=dtype, generator=drawn)
        left = (buffers_of(one) for one in (after, exact_after, *(one.after for one in runs)))
        return found, BuffersAfter(next(left), next(left), tuple(left))

    def values(self, inputs: Tree, state: Tree) -> Expected:
        """What the fp64 reference gives and leaves, without budgets: a result to compare others' rules with."""
        outputs, after, info = self._reference(inputs, state, close=narrowest(inputs, state))

        def value(path: str, leaf: HostTensor) -> Rule:
            return Rule(path=path, spec=leaf.spec, expected=leaf.to_f64() if leaf.is_float else leaf.bits())

        buffers = {path: value(state_name(path), leaf) for path, leaf in after.items()}
        return Expected({"outputs": zip_rules("output", (outputs,), value), "buffers": buffers}, alias_pairs(info))

    def exact(self, inputs: Tree, state: Tree) -> Expected | None:
        """The expectation where no honest program rounds: the native result is the rounded fp64 one, to the bit.

        The inputs are whole numbers whose sums are exact in every order (the family `exact`). The budget is two units
        in the last place of the result, as for a mean by the reciprocal, and `EXACT_SLACK` units of the sum of the
        terms' absolute values, as for transforms (Winograd) and partial sums; one term of n left out exceeds that for
        n < 2^20 (docs/verification.md). None where the reference rounds, gives other numbers than whole ones and means
        of them, or runs in no fp64; also where it decides by something that it rounds, as a floor of a product does.
        """
        native, after, info = self._reference(inputs, state, dtype="native")
        exact, exact_after, told = self._reference(inputs, state, close=narrowest(inputs, state))
        exact_after = {path: exact_after[path] for path in after if path in exact_after}
        if told.get("reference_dtype", "float64") != "float64" or not all_exact((native, after), (exact, exact_after)):
            return None
        pairs = zip(tensor_leaves((native, after)), tensor_leaves((exact, exact_after)), strict=True)
        if not all(whole_numbers(leaf.to_f64(), mine.dtype, inputs) for mine, leaf in pairs if mine.is_float):
            return None
        if self._hides_rounding(inputs, state, exact):
            return None
        positive = draws.absolute_state(state)
        total, total_after, _ = self._reference(map_tensors(inputs, draws.absolute), positive)
        if not _same_shapes(total, exact):
            return None
        tree = zip_rules("output", (native, exact, total), exact_rule)
        tree = _with_gather(tree, [t.to_f64() for t in tensor_leaves(inputs) if t.is_float])
        buffers = {}
        for path, before in state_before(after, inputs, state).items():
            name, left = state_name(path), after[path]
            same = same_bits(left, before)
            buffers[path] = (
                unchanged_rule(name, left) if same else exact_rule(name, left, exact_after[path], total_after[path])
            )
        return Expected({"outputs": tree, "buffers": buffers}, alias_pairs(info), generator=self._generator(info))

    def _hides_rounding(self, inputs: Tree, state: Tree, exact: Tree) -> bool:
        """Whether fractional parameters decide the result: their nudge changes it, although it is whole."""
        table = held(state)
        known = tensor_leaves((state["params"] if table is None else [], state["buffers"]))
        whole = all(bool(np.all(one == np.round(one))) for one in (leaf.to_f64() for leaf in known if leaf.is_float))
        if whole and (table is None or table.recipe["kind"] == "whole"):
            return False
        want = [leaf.bits() for leaf in tensor_leaves(exact)]
        for nudged in self.states(state).nudged:
            found = [leaf.bits() for leaf in tensor_leaves(self._reference(inputs, nudged)[0])]
            if not all(map(np.array_equal, found, want)):
                return True
        return False

    def _in_float64(
        self, inputs: Tree, states: ReferenceStates, info: Mapping[str, Any], close: str, still: Sequence[float]
    ) -> tuple[Tree, Mapping[str, HostTensor], str, list[_NudgedRun]]:
        """(outputs, state afterwards, dtype) of the fp64 run, and the nudged ones, for each of `NUDGES`: the fp64 run
        itself where one leaves its domain. info: of the run in the reference's own dtypes.
        """
        run = partial(self._run_nudged, inputs, states, still=still)
        with ThreadPoolExecutor(1, "reference") as pool:
            beside = [pool.submit(run, n, native=False, apart=True) for n in range(self._beside(info))]
            exact, after, exact_info = self._reference(inputs, states.exact, close=close)
            dtype = str(exact_info.get("reference_dtype", "float64"))
            beside = [] if dtype == "native" else beside
            rest = [run(n, native=dtype == "native", apart=False) for n in range(len(beside), len(NUDGES))]
            found = [*(one.result() for one in beside), *rest]
        unmoved = _NudgedRun(inputs, exact, after)
        fit = [one if one is not None and _same_shapes(one.outputs, exact) else unmoved for one in found]
        return exact, after, dtype, fit

    def _run_nudged(
        self, inputs: Tree, states: ReferenceStates, number: int, still: Sequence[float], *, native: bool, apart: bool
    ) -> _NudgedRun | None:
        """The reference's run for one of `NUDGES`; None where it leaves its domain.

        native: inputs keep their dtype, since the reference accepts no other. apart: beside another run.
        """
        way, narrow = NUDGES[number], narrowest(inputs, states.native)
        try:
            arguments = draws.nudge(inputs, self._seed_of_nudge(way) + 1, rounded=native, way=way, still=still)
            how: Any = {"dtype": "native" if native else "float64", "close": narrow, "apart": apart}
            how["rounding"] = (self._seed_of_nudge(way) + 2, way.size) if way.sums else None
            outputs, buffers, _ = self._reference(arguments, states.nudged[number], **how)
        except HipwrightError as error:
            if isinstance(error, InfrastructureError):
                raise
            return None
        return _NudgedRun(arguments, outputs, buffers)

    def _beside(self, info: Mapping[str, Any]) -> int:
        """How many of the nudged runs are made beside the others, in a second host: those of long runs without effects
        of their own, where another processor is there for it.
        """
        plain = self.draw is None and not info.get("random") and not info.get("mutated_inputs")
        long = plain and float(info.get("seconds") or 0.0) >= LONG_RUN_S and not self.handle.delegated
        return BESIDE if long and len(os.sched_getaffinity(0)) > 1 else 0


@dataclass(frozen=True)
class _NudgedRun:
    """One run of the reference on nudged inputs: those, its outputs, and the state afterwards."""

    inputs: Tree
    outputs: Tree
    after: Mapping[str, HostTensor]


def _same_shapes(one: Tree, other: Tree) -> bool:
    return draws.same_shapes(tensor_leaves(one), tensor_leaves(other))


def narrowest(inputs: Tree, state: Tree) -> str:
    """The float dtype with the fewest digits among inputs, parameters and buffers, of those that kernels compute in."""
    held = [*tensor_leaves(inputs), *tensor_leaves(state["params"]), *tensor_leaves(state["buffers"])]
    kinds = (computed(leaf.dtype) for leaf in held if leaf.is_float)
    return max(kinds, key=UNIT.__getitem__, default="float32")


def alias_pairs(info: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """(leaf path, what it shares memory with), from the report of a worker or the task host."""
    return frozenset((str(a), str(b)) for a, b in info.get("aliases") or ())


def _among(gather: IndexRule, sources: Sequence[F64]) -> bool:
    return any(gather.source is source for source in sources)


def _with_gather(tree: Any, sources: Sequence[Any]) -> Any:
    """The tree with an `IndexRule` in each index leaf that selects from an input or a float output."""
    inputs = [source for source in sources if source.ndim]
    outputs = [rule.expected for rule in rules(tree) if rule.element is not None and rule.expected.ndim]

    def one(node: Any) -> Any:
        if isinstance(node, Rule):
            if node.element is not None:
                return node
            gather = find_gather(node.expected, inputs, outputs) or find_gather(node.expected, outputs, outputs)
            if gather is not None and node.judged is not None and gather.any_index() and not _among(gather, inputs):
                gather = None  # an output with equal elements alone says nothing about the index
            if gather is None or node.judged is None:
                return replace(node, gather=gather)
            several = gather.ties() if node.near is None else gather.ties() & ~node.near
            return replace(node, gather=gather, judged=node.judged | several)
        if isinstance(node, tuple):
            return tuple(map(one, node))
        return {k: one(v) for k, v in node.items()} if isinstance(node, dict) else node

    return one(tree)
