"""The mutation test: does the verifier notice small mistakes in honest programs?

A mutant that passes is examined. It is equivalent only when its machine code for gfx942 is the same to the bit, or its
outputs are, on `TRIES` inputs of all planned shapes; otherwise it survived, which is a hole in the verifier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

import numpy as np

from hipwright.audit.bench import LIMITS, Bench
from hipwright.audit.cases import Case, select
from hipwright.audit.mutants import Mutant, mutants, sample
from hipwright.errors import HipwrightError
from hipwright.evaluate import Evaluator
from hipwright.program import parse
from hipwright.records import Build, Program
from hipwright.tensors import HostTensor, Tree, map_tensors
from hipwright.toolchain import amdgpu, cpu
from hipwright.toolchain.cache import BuildCache
from hipwright.verify.candidate import POISON_A, Answer, Candidate, Rejected
from hipwright.verify.inputs import with_values
from hipwright.verify.ledger import first_difference
from hipwright.verify.oracle import Case as Trial

TRIES = 1000
KILLED_SHARE = 0.98
EQUIVALENT_SHARE = 0.15
Fate = Literal["killed", "equivalent", "survived", "stillborn", "void"]


@dataclass(frozen=True)
class Examined:
    """What became of a mutant. why: the verdict that killed it, or what made it equivalent."""

    mutant: Mutant
    fate: Fate
    why: str = ""


@dataclass
class Report:
    """A mutation run. Stillborn mutants (no program, or one that does not compile) are not counted."""

    seed: int
    examined: list[Examined] = field(default_factory=list)

    @property
    def counts(self) -> Counter[Fate]:
        """How many met which fate."""
        return Counter(e.fate for e in self.examined)

    @property
    def total(self) -> int:
        """Mutants that count."""
        return sum(self.counts[fate] for fate in ("killed", "equivalent", "survived"))

    @property
    def killed_share(self) -> float:
        """Of those that are not equivalent."""
        real = self.counts["killed"] + self.counts["survived"]
        return self.counts["killed"] / real if real else 0.0

    @property
    def good(self) -> bool:
        """Enough killed, few enough equivalent, every verdict given."""
        few = self.counts["equivalent"] <= EQUIVALENT_SHARE * self.total
        return self.killed_share >= KILLED_SHARE and few and not self.counts["void"]

    def survivors(self) -> list[Mutant]:
        """Those that fooled the verifier."""
        return [e.mutant for e in self.examined if e.fate == "survived"]

    def summary(self) -> str:
        """One line."""
        c = self.counts
        return (
            f"{self.total} mutants (seed {self.seed}): {c['killed']} killed, {c['survived']} survived "
            f"({self.killed_share:.1%} of the non-equivalent killed), {c['equivalent']} equivalent "
            f"({c['equivalent'] / max(self.total, 1):.1%}); {c['stillborn']} did not compile, {c['void']} void"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        kinds: dict[str, Counter[Fate]] = {}
        for e in self.examined:
            kinds.setdefault(e.mutant.operator, Counter())[e.fate] += 1
        return {
            "seed": self.seed, "total": self.total, "counts": dict(self.counts),
            "killed_share": round(self.killed_share, 4), "good": self.good,
            "operators": {kind: dict(fates) for kind, fates in sorted(kinds.items())},
            "mutants": [{"mutant": e.mutant.said(), "fate": e.fate, "why": e.why[:300]} for e in self.examined],
        }  # fmt: skip


def run_mutants(
    bench: Bench,
    count: int,
    seed: int,
    patterns: Sequence[str] = (),
    *,
    workers: int = 2,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Judge `count` mutants of the honest programs (fewer if there are no more), drawn by the seed."""
    cases = {c.name: c for c in select(patterns, lane="program", kind="honest")}
    todo = iter(sample([mutants(name, parse(case.text)) for name, case in cases.items()], seed))
    report = Report(seed)
    with ThreadPoolExecutor(max_workers=workers) as pool:
        while report.total < count:
            batch = list(islice(todo, min(count - report.total, 4 * workers)))
            if not batch:
                break
            for examined in pool.map(lambda m: examine(bench, cases[m.program], m), batch):
                report.examined.append(examined)
                if examined.fate in ("survived", "void"):
                    say(f"{examined.fate}: {examined.mutant.said()} {examined.why}")
    return report


def examine(bench: Bench, case: Case, mutant: Mutant) -> Examined:
    """Verify one mutant, and if it passes find out whether it is one."""
    evaluator = bench.evaluator(case.task_path)
    try:
        found = evaluator.evaluate(Program(text=mutant.text))
        if found.status in ("parse_error", "compile_error"):
            return Examined(mutant, "stillborn", found.message)
        if found.status != "pass":
            fate: Fate = "killed" if found.fault == "candidate" else "void"
            return Examined(mutant, fate, f"{found.status}: {found.message}")
        if why := equivalent(evaluator, case.text, mutant.text):
            return Examined(mutant, "equivalent", why)
    except HipwrightError as error:
        return Examined(mutant, "void", error.message)
    return Examined(mutant, "survived")


def equivalent(evaluator: Evaluator, text: str, other: str, tries: int = TRIES) -> str:
    """Why two programs are one, "" when they are not: the same gfx942 code, or the same bits on `tries` inputs."""
    codes = [_amd_code(one, evaluator.cache) for one in (text, other)]
    if codes[0] and codes[0] == codes[1]:
        return "the code objects are identical"
    with _session(evaluator, text) as first, _session(evaluator, other) as second:
        for trial in islice(_trials(evaluator), tries):
            if not _same(_outputs(first, trial), _outputs(second, trial)):
                return ""
    return f"the outputs on {tries} inputs are bit-identical"


def _amd_code(text: str, cache: BuildCache) -> str:
    parsed = parse(text)
    build = amdgpu.build(parsed.hip, "gfx942", parsed.defines(), cache=cache)
    return build.blob if build.ok else ""


def _session(evaluator: Evaluator, text: str) -> Candidate:
    parsed = parse(text)
    build: Build = cpu.build(parsed.hip, parsed.defines(), wave=64, checked=False, cache=evaluator.cache)
    planned = evaluator.oracle.planned()[0].workload.name
    state = evaluator.oracle.case(planned, evaluator.oracle.families(planned)[0]).state
    so = evaluator.cache.path(build.blob)
    return Candidate(evaluator.candidates, Program(text=text), state, so=so, limits=LIMITS)


def _trials(evaluator: Evaluator) -> Iterator[Trial]:
    """Cases without end: the verifier's own, then shapes in turn with new values of ever other sizes."""
    oracle = evaluator.oracle
    names = [p.workload.name for p in oracle.planned() if p.role != "full"] or [oracle.planned()[0].workload.name]
    known = [oracle.case(name, family) for name in names for family in oracle.families(name)]
    yield from (case for case in known if not case.rejected)
    bases = [case for case in known if case.family in ("given", "normal")]
    rng = np.random.default_rng(12345)
    while True:
        for base in bases:
            yield replace(base, inputs=_fresh(base.inputs, rng))


def _fresh(inputs: Tree, rng: np.random.Generator) -> Tree:
    scale = float(10.0 ** rng.uniform(-2.0, 1.5))
    shift = float(rng.choice([0.0, 0.0, 1.0, -3.0])) * scale

    def one(tensor: HostTensor) -> HostTensor:
        if not tensor.is_float:
            return HostTensor.of(rng.permuted(tensor.bits().reshape(-1)).reshape(tensor.shape), tensor.dtype)
        return with_values(tensor, rng.standard_normal(tensor.shape) * scale + shift)

    return map_tensors(inputs, one)


def _outputs(session: Candidate, trial: Trial) -> Answer | str:
    """What a program makes of an input; its failure in words, which can be the same for both too."""
    try:
        return session.run(trial, poison=POISON_A)
    except Rejected as rejected:
        return rejected.verdict.status
    except HipwrightError as error:
        return error.verdict().status


def _same(a: Answer | str, b: Answer | str) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str) and a == b
    return first_difference(a, b) is None
