"""Judges results that stay on the device and are read in chunks: correctness, and equality of two runs."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hipwright.errors import GuardFailed
from hipwright.records import TensorSpec, Verdict
from hipwright.tensors import BITS, HostTensor, leaves
from hipwright.verify.atomics import DETERMINISTIC
from hipwright.verify.bit_differences import different
from hipwright.verify.candidate import POISON_A, POISON_B, Rejected, launches
from hipwright.verify.comparison import OutputComparison
from hipwright.verify.gpu.chunk_source import ChunkSource, span_bytes
from hipwright.verify.gpu.connection import RunInfo
from hipwright.verify.gpu.loaded import LoadedProgram

if TYPE_CHECKING:
    from hipwright.verify.gpu.reference import DeviceReference
    from hipwright.verify.gpu.reference_handles import ExpectationInfo


def judge_on_device(
    session: LoadedProgram, run: RunInfo, reference: DeviceReference, expected: ExpectationInfo, prefix: str = ""
) -> OutputComparison:
    """Raises Rejected unless a result on the device is correct. Buffers are judged where the result has them."""
    name, family = expected.drawn.workload, expected.drawn.family
    _require_unmodified(run, expected, prefix)
    if not run.specs["buffers"]:  # after many timed calls buffers are not those of one call
        expected = replace(expected, tree={**expected.tree, "buffers": {}})
    found = session.judged_by(run, reference, expected)
    if not found.ok:
        evidence = {**found.evidence(), "launches": launches(run.info["stats"])}
        raise Rejected(large_verdict(found.status, name, family, prefix + found.message, **evidence))
    return found


def _require_unmodified(run: RunInfo, expected: ExpectationInfo, prefix: str = "") -> None:
    """Raises Rejected for a call that wrote to its inputs or returned them."""
    name, family = expected.drawn.workload, expected.drawn.family
    for key, what in (("inputs_changed", "input"), ("params_changed", "parameter")):
        if run.info[key]:
            message = f"{prefix}{what} {run.info[key][0]} was written to"
            raise Rejected(large_verdict("input_mutated", name, family, message, changed=run.info[key]))
    for leaf, holder in run.info["aliases"]:
        if (leaf, holder) not in expected.aliases:
            message = f"{prefix}{leaf} shares memory with {holder}, which the reference's does not"
            raise Rejected(large_verdict("bad_output_spec", name, family, message, output=leaf))


@dataclass
class AcceptedDigests:
    """Results for one set of inputs that were judged correct, by their bits: specs, and a digest of each tensor.

    Nearly every result of a correct program has occurred before, and judging it sends all of it through the host. The
    seed of the digests is drawn here and never given to a kernel, so that none can aim at a digest.
    """

    seed: int = field(default_factory=lambda: secrets.randbits(62))
    right: dict[tuple[str, ...], OutputComparison] = field(default_factory=dict)


def judge_set(
    session: LoadedProgram,
    reference: DeviceReference,
    expected: ExpectationInfo,
    set_name: str,
    seen: AcceptedDigests | None = None,
) -> OutputComparison:
    """One call on the first slot of a set, judged on the device. Raises Rejected, also where the program's guards
    refuse it.

    seen: of this expectation. It is used for programs alone: host code's digests are not trusted.
    """
    name, family = expected.drawn.workload, expected.drawn.family
    try:
        run = session.run_set(set_name)
    except GuardFailed as error:
        message = f"an assert refuses it: {error.message}"
        raise Rejected(large_verdict("launch_error", name, family, message)) from error
    except Rejected as rejected:
        raise Rejected(with_case_name(rejected.verdict, name, family)) from rejected
    known = seen.right if seen is not None and session.program.form == "program" else None
    key = (repr(run.specs), *session.digests(run, seen.seed)) if seen is not None and known is not None else ()
    if known is not None and key in known:
        _require_unmodified(run, expected)
        found = known[key]
    else:
        found = judge_on_device(session, run, reference, expected)
        if known is not None:
            known[key] = found
    session.drop(run)
    return found


def repeats_on_device(
    session: LoadedProgram,
    reference: DeviceReference,
    cases: Sequence[ExpectationInfo],
    sources: Sequence[ChunkSource],
    open_order: Callable[[Sequence[Mapping[str, Any]]], bool],
    *,
    library: bool = False,
) -> Literal["open", "library", "equal"]:
    """Runs the first case with two poisons, then the second case at the same addresses.

    The two results must have the same bits unless the launches leave the order open ("open"), or library operators may
    (`library`) and the two are the same where those are deterministic ("library"); the second case must leave the first
    call's result alone. Raises Rejected.
    """
    name, family = cases[0].drawn.workload, cases[0].drawn.family
    label = f"{name}/{family}"
    session.place(label, sources[0])
    first, second = session.run_set(label), session.run_set(label, poison=POISON_B)
    judge_on_device(session, second, reference, cases[0])
    free = open_order(first.info["stats"])
    place = None if free else first_difference_on_device(session, first, second)
    if place is not None and not (library and _equal_where_deterministic(session, label)):
        message = f"element {place[1]} of output {place[0]} depends on the order in which threads and blocks run or on "
        message += "uninitialised memory, and the kernels declare no float atomics"
        raise Rejected(large_verdict("nondeterministic", name, family, message, output=place[0], index=[place[1]]))
    session.drop(second)
    session.fill(label, 0, sources[1])
    run = session.run_set(label)
    judge_on_device(session, run, reference, cases[1], "in a second call with new values at the same addresses, ")
    if not cases[0].aliases:
        changed = "an earlier call's result changed with the next call: "
        judge_on_device(session, first, reference, cases[0], changed)
    for one in (first, run):
        session.drop(one)
    if free:
        return "open"
    return "equal" if place is None else "library"


def _equal_where_deterministic(session: LoadedProgram, label: str) -> bool:
    """Whether two runs of a placed set have the same bits where library operators use deterministic algorithms."""
    settings: dict[str, Any] = {DETERMINISTIC: True}
    runs = [session.run_set(label, poison=poison, **settings) for poison in (POISON_A, POISON_B)]
    equal = first_difference_on_device(session, *runs) is None
    for run in runs:
        session.drop(run)
    return equal


def first_difference_on_device(session: LoadedProgram, a: RunInfo, b: RunInfo) -> tuple[int, int] | None:
    """(leaf, index in its memory) of the first element that differs between two results; NaN equals NaN.

    A tensor with gaps is not compared, as the contents of gaps are undefined.
    """
    specs = [leaf for leaf in leaves(a.specs) if isinstance(leaf, TensorSpec)]
    others = [leaf for leaf in leaves(b.specs) if isinstance(leaf, TensorSpec)]
    if specs != others:
        return 0, 0
    for (leaf, offset, x), (_, _, y) in zip(session.chunks(a), session.chunks(b), strict=True):
        spec = specs[leaf]
        if _elements(spec) * BITS[spec.dtype].itemsize != span_bytes(spec):
            continue
        found = different(_typed(x, spec.dtype), _typed(y, spec.dtype))
        if found.any():
            return leaf, offset // BITS[spec.dtype].itemsize + int(np.argmax(found))
    return None


def _elements(spec: TensorSpec) -> int:
    return int(np.prod(spec.shape, dtype=np.int64))


def _typed(chunk: HostTensor, dtype: str) -> HostTensor:
    return HostTensor.of(np.ascontiguousarray(chunk.bits()).view(BITS[dtype]), dtype)


def large_verdict(status: Any, workload: str, family: str, message: str, **evidence: Any) -> Verdict:
    """A verdict on a candidate about one case."""
    return Verdict(
        status=status,
        fault="candidate",
        workload=workload,
        family=family,
        message=f"{message} (on {workload}/{family})",
        evidence={"workload": workload, "family": family, **evidence},
    )


def with_case_name(verdict: Verdict, workload: str, family: str) -> Verdict:
    """The verdict with the case that it is about."""
    return large_verdict(verdict.status, workload, family, verdict.message, **verdict.evidence)


def stray_write_verdict(changed: tuple[str, int, int, str]) -> Verdict:
    """The verdict on a write to inputs that no call was given (`LoadedProgram.audit`)."""
    name, slot, leaf, what = changed
    where = "beside" if what == "zone" else "to"
    return Verdict(
        status="out_of_bounds",
        fault="candidate",
        stage="launch",
        message=f"something was written {where} input {leaf} of {name}, slot {slot}, which no call was given",
        evidence={"set": name, "slot": slot, "argument": leaf, "kind": "write"},
    )
