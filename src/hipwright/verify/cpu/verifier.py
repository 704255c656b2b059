"""Verifies one program on the `cpu` target (stages: `cpu_verification`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from hipwright.config import cache_dir
from hipwright.errors import CandidateError
from hipwright.program import Parsed
from hipwright.records import Build, Program, Verdict
from hipwright.sandbox import Limits, Zygote
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu.sides import TargetSide
from hipwright.verify.candidate import Rejected
from hipwright.verify.cpu.cases import Builds
from hipwright.verify.cpu.cpu_verification import CpuVerification
from hipwright.verify.oracle import Oracle
from hipwright.verify.reply import accepted_report
from hipwright.verify.verification import Gate

NO_SIDES: Mapping[TargetSide, Build] = MappingProxyType({})


def verify_cpu(
    parsed: Parsed,
    program: Program,
    builds: Builds,
    oracle: Oracle,
    zygote: Zygote,
    *,
    waves: Sequence[int] = (64,),
    limits: Limits = Limits(),  # noqa: B008
    cache: BuildCache | None = None,
    gate: Gate = "full",
    sides: Mapping[TargetSide, Build] = NO_SIDES,
    executor: Path | None = None,
) -> Verdict:
    """Verifies one built program. gate: "fast" runs the checked builds alone, on few families and one unseen shape.

    builds: by (wave, checked); every wave of `waves` needs both, and a checked one for 32 that is not in `waves` is run
    for information. sides: checked builds of other sides of the device headers, each of which is judged. cache: the
    folder of the builds' blobs (default: the shared cache). executor: what runs the builds of a simulated target.
    Raises infrastructure errors; faults of the program or the task are in the Verdict.
    """
    problem = oracle.status(cases=not oracle.handle.slow)  # of a slow task, the judged cases alone are made
    if problem is not None:
        status, why = problem
        return Verdict(status=status, fault="task", stage="lint", message=why)
    store = cache or BuildCache(cache_dir())
    run = CpuVerification(
        oracle=oracle,
        parsed=parsed,
        program=program,
        builds=builds,
        zygote=zygote,
        limits=limits,
        cache=store,
        waves=tuple(waves),
        sides=sides,
        executor=executor,
    )
    try:
        run.run_stages(gate)
    except Rejected as rejected:
        return run.verdict(rejected.verdict)
    except CandidateError as error:
        return run.verdict(accepted_report(error.verdict()))
    return run.verdict(Verdict(status="pass"))
