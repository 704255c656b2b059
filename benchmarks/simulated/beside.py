"""One program on the cpu target and on a simulated one, on the same inputs: verdicts, bits and kernel times."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hipwright.api.task_engine import task_engine
from hipwright.engine import author, write
from hipwright.engine.knobs import GIVEN_UP
from hipwright.errors import CandidateError, GuardFailed, HipwrightError
from hipwright.evaluation import Evaluator
from hipwright.events import silent
from hipwright.machine import Machine
from hipwright.program import parse
from hipwright.records import Build, Program, Verdict
from hipwright.targets import CPU, TARGETS
from hipwright.tensors import Tree, tensor_leaves
from hipwright.toolchain.cpu import build as cpu
from hipwright.toolchain.sim import build as simulated
from hipwright.toolchain.sim import runtime
from hipwright.verify import verify_cpu
from hipwright.verify.candidate import CandidateSession, Rejected, judge
from hipwright.verify.case_draws import VerificationCase

FAMILIES = 4
"""Input families of each derived workload."""
LIMIT_S = 20.0


@dataclass(frozen=True)
class BesideRow:
    """One program on both targets. draw: 0 for the engine's first answer, else the number of a draw of its choices.

    status: "pass", or why the simulated target refused it; cases: that both ran; equal: cases whose outputs have the
    same bits; cpu_ms, sim_ms: of the kernels of all cases, without checks.
    """

    task: str
    target: str
    draw: int
    status: str
    message: str
    cases: int
    equal: int
    cpu_ms: float
    sim_ms: float


def rows(made: Machine, task: Path, name: str, target: str, draws: int, seed: int) -> Iterator[BesideRow]:
    """A row for each draw of a task's program."""
    with made.open(task, seed=seed + 1, listener=silent) as bench:
        engine = task_engine(bench)
        for draw in range(draws):
            program = engine.default() if draw == 0 else write(engine.graph, _choices(engine.graph, name, draw))
            yield _row(bench.evaluator, program, name, target, draw)


def _choices(graph: object, name: str, draw: int) -> dict[str, object]:
    """About half of what the engine offers, drawn anew."""
    rng = random.Random(f"{name}/{draw}")
    space = author(graph, {}).space  # type: ignore[arg-type]
    offered = {key: choice for key, choice in sorted(space.items()) if key != GIVEN_UP}
    return {key: rng.choice(list(choice.options)) for key, choice in offered.items() if rng.random() < 0.5}


def _row(evaluator: Evaluator, program: Program, name: str, target: str, draw: int) -> BesideRow:
    wave = TARGETS[target].architecture.wave
    parsed = parse(program.text)
    defines = parsed.defines(program.knobs)
    host = cpu.build(parsed.hip, defines, wave=wave, cache=evaluator.cache)
    gpu = simulated.build(parsed.hip, target, defines, cache=evaluator.cache)
    if not (host.ok and gpu.ok):
        return BesideRow(name, target, draw, "compile_error", (host.log or gpu.log)[:200], 0, 0, 0.0, 0.0)
    verdict = _verdict(evaluator, program, gpu, wave)
    if not verdict.passed:
        return BesideRow(name, target, draw, verdict.status, verdict.message[:400], 0, 0, 0.0, 0.0)
    cases = _cases(evaluator, verdict)
    ran, equal, times, status, message = 0, 0, {CPU.name: 0.0, target: 0.0}, "pass", ""
    with (
        _session(evaluator, program, cases[0], host, wave) as first,
        _session(evaluator, program, cases[0], gpu, wave, simulated_=True) as second,
    ):
        for case in cases:
            try:
                with suppress(GuardFailed):
                    expected = first.run(case)
                    found = second.run(case)
                    judge(case, found)
                    ran += 1
                    equal += _bits(expected.tree) == _bits(found.tree)
                    times[CPU.name] += sum(entry["seconds"] for entry in expected.stats)
                    times[target] += sum(entry["seconds"] for entry in found.stats)
            except (Rejected, CandidateError) as error:
                judged = error.verdict if isinstance(error, Rejected) else error.verdict()
                status, message = judged.status, judged.message[:400]
                break
            except HipwrightError as error:
                status, message = "unsupported", error.message[:200]
                break
    host_ms, sim_ms = (round(1e3 * times[key], 3) for key in (CPU.name, target))
    return BesideRow(name, target, draw, status, message, ran, equal, host_ms, sim_ms)


def _verdict(evaluator: Evaluator, program: Program, build: Build, wave: int) -> Verdict:
    """The fast gate's on the simulated target; an error that is not the candidate's as a verdict too."""
    try:
        return verify_cpu(
            parse(program.text),
            program,
            {(wave, checked): build for checked in (True, False)},
            evaluator.oracle,
            evaluator.candidates,
            waves=(wave,),
            limits=evaluator.limits,
            cache=evaluator.cache,
            gate="fast",
            executor=runtime.library(evaluator.cache),
        )
    except HipwrightError as error:
        return error.verdict()


def _cases(evaluator: Evaluator, verdict: Verdict) -> list[VerificationCase]:
    """Cases of the workloads that the verdict rests on: shapes that the program supports and that are not too large."""
    oracle = evaluator.oracle
    return [oracle.case(name, family) for name in verdict.workloads for family in oracle.families(name)[:FAMILIES]]


def _session(
    evaluator: Evaluator, program: Program, case: VerificationCase, build: Build, wave: int, *, simulated_: bool = False
) -> CandidateSession:
    return CandidateSession(
        evaluator.candidates,
        program,
        case.state,
        so=evaluator.cache.path(build.blob),
        executor=runtime.library(evaluator.cache) if simulated_ else None,
        wave=wave,
        limits=evaluator.limits,
        launch_limit_s=LIMIT_S,
        draws=evaluator.oracle.side_effects.draws,
    )


def _bits(tree: Tree) -> list[bytes]:
    return [leaf.bits().tobytes() for leaf in tensor_leaves(tree)]
