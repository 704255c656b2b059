"""The device host's cases: their expectations, degeneracy checks and comparisons. Runs in the device host."""

from __future__ import annotations

import gc
from typing import Any

import torch

from hipwright.digest import span
from hipwright.errors import TaskError
from hipwright.task.device.compare import LeafComparison, best_constant, blocks_of, constant_blocks, passes
from hipwright.task.device.expect import Expecting
from hipwright.task.device.held_runs import HeldRuns
from hipwright.task.device.inputs import Told, is_fault, key_of, phase, spec_of
from hipwright.task.device.leaf import DeviceLeaf
from hipwright.task.device.model import ModelCall, is_memory
from hipwright.task.device.parts import WantsMemory
from hipwright.task.device.stream import Incoming
from hipwright.tensors import Tree
from hipwright.torchio import NAMES, map_torch

_EXPECTED = 7  # bytes that computing an expectation of a row-wise float32 model needs, over those of its inputs


class Cases(HeldRuns):
    """The service's third part: expectations and comparisons."""

    def __init__(self, init: dict[str, Any]) -> None:
        super().__init__(init)
        self._checks: dict[int, list[Incoming]] = {}

    def run(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Computes the expectation header["case"]; returns its leaves, and {"outputs", "buffers"} with specs for
        tensors.

        header["may_ask"]: {"wanted": bytes beyond this process's share} where float64 fits neither whole nor in parts.
        """
        drawn = header["drawn"]
        args, self._current = self._inputs(drawn), header["case"]
        self._make_room(_EXPECTED * sum(span(tensor).numel() for tensor in self._leaf(drawn)), keep=key_of(drawn))
        phase("forward")
        making = Expecting(
            self.file,
            args,
            self._table(header["state"]),
            seed=drawn["seed"],
            room=self._room,
            spoil=lambda: self._drop(drawn),
            written=header.get("written", ()),
        )
        wanted = 0
        try:
            case = making.make(strict=header["strict"], may_ask=header.get("may_ask", False))
        except WantsMemory as wants:
            wanted = wants.bytes
        if wanted:
            del making, args
            gc.collect()  # see `_make_room`
            self._empty()
            return {"wanted": wanted}, None
        outputs, buffers = case.tree
        tree = {"outputs": map_torch(outputs, spec_of), "buffers": map_torch(buffers, spec_of)}
        case.tree = None
        if case.mutated:
            self._drop(drawn)
        self._keep(header["case"], case)
        reply = {
            "leaves": [_describe(leaf) for leaf in case.leaves],
            "aliases": case.aliases,
            "random": case.random,
            "complex": case.complex,
            "mutated": case.mutated,
            "reference": case.reference,
            "moved": case.moved,
            "short": case.short,
            "notes": case.notes,
            "seconds": case.seconds,
            "bytes_out": case.bytes_out,
            "unchanged": [leaf.path for leaf in case.leaves if not leaf.evidence],
        }
        del making, outputs, buffers
        self._empty()
        return reply, tree

    def budgets(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Sets every leaf's budgets from the numbers in the header."""
        leaves = self._cases[header["case"]].leaves
        return {"shares": [leaf.settle(n) for leaf, n in zip(leaves, header["budgets"], strict=True)]}, None

    def lint(self, header: dict[str, Any], bundle: Tree) -> Told:
        """{"passes": which trivial outputs pass each leaf that is evidence (`verify.gpu.budget.degenerate`), "skipped":
        those not tried for lack of memory}.
        """
        phase("forward")
        self._current = header["case"]
        case = self._cases[header["case"]]
        evidence = [leaf for leaf in case.leaves if leaf.evidence and leaf.numel]
        sources = self._leaf(header["drawn"])
        passing = [self._blind(leaf, sources) for leaf in evidence]
        wanted = case.bytes_out + sum(span(tensor).numel() for tensor in sources)
        del sources
        self._make_room(wanted)
        skipped = bool(evidence) and self._room() < wanted
        strangers = {} if skipped or not evidence else self._strangers(header)
        for leaf, found in zip(evidence, passing, strict=True):
            other = strangers.get(leaf.path)
            same = other is not None and tuple(other.shape) == leaf.shape and other.dtype == leaf.dtype
            found["stranger"] = same and passes(leaf, blocks_of(other))
            del other
        strangers.clear()
        self._empty()  # memory that torch only reserves would be missing in the candidate's process
        return {"passes": passing, "skipped": ["the outputs for other inputs"] if skipped else []}, None

    def _blind(self, leaf: DeviceLeaf, sources: list[torch.Tensor]) -> dict[str, Any]:
        alike = [s for s in sources if s.numel() == leaf.numel and s.is_floating_point() != leaf.exact]
        alike = [s if not leaf.exact else s.to(leaf.dtype) for s in alike]
        return {
            "blind": leaf.judged is not None and not bool(leaf.judged.any()),
            "zeros": passes(leaf, constant_blocks(leaf, 0)),
            "constant": passes(leaf, constant_blocks(leaf, best_constant(leaf))),
            "single": leaf.numel == 1,
            "identity": any(passes(leaf, blocks_of(source)) for source in alike),
        }

    def _strangers(self, header: dict[str, Any]) -> dict[str, torch.Tensor]:
        """The baseline's outputs for other inputs, by path; none where it refuses them."""
        try:
            call = ModelCall(self.file, self.file.model(self._table(header["state"])), self._inputs(header["other"]))
        except TaskError as error:
            if is_memory(error):
                self._empty()
            elif is_fault(error.__cause__):
                raise
            return {}
        finally:
            self._drop(header["other"])
        return dict(call.leaves())

    # ---------------------------------------------------------------- comparison

    def compare_begin(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Starts to compare a case with tensors of header["strides"], one for each leaf.

        {"gone": True} where the case was freed for others. Without strides for the buffers, which come last, only the
        outputs are compared.
        """
        case = self._cases.get(header["case"])
        if case is None:
            return {"gone": True}, None
        self._used[header["case"]] = self._made_cases
        pairs = zip(case.leaves, header["strides"], strict=False)
        self._checks[header["case"]] = [Incoming(LeafComparison(leaf), stride) for leaf, stride in pairs]
        return {}, None

    def compare_chunk(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Bytes of header["leaf"]'s span from header["offset"] on: the bundle's, or those of a bridge."""
        if "bridge" in header:
            raw = self._bridges.taken(header["bridge"], header["bytes"])
        else:
            raw = self._staging.into(bundle)
        self._checks[header["case"]][header["leaf"]].add(header["offset"], raw)
        return {}, None

    def compare_end(self, header: dict[str, Any], bundle: Tree) -> Told:
        """Bundle back: {"leaves": results}."""
        reply = {"leaves": [incoming.result() for incoming in self._checks.pop(header["case"])]}
        self._empty()
        return {}, reply


def _describe(leaf: DeviceLeaf) -> dict[str, Any]:
    return {"path": leaf.path, "dtype": NAMES[leaf.dtype], "shape": list(leaf.shape), "float": not leaf.exact}
