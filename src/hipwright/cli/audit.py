"""`hipwright audit`: the verifiers against candidates that are known to be honest, broken or hostile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hipwright.api import targets
from hipwright.cli.options import Json, MaxTokens, MaxUsd, Price, Unsafe
from hipwright.cli.output import CommandOutput
from hipwright.errors import BadInput
from hipwright.targets import CPU, TARGETS

if TYPE_CHECKING:
    from hipwright.audit.bench import AuditBench
    from hipwright.audit.cases import CorpusCase
    from hipwright.audit.mutate import MutationReport
    from hipwright.audit.run import Matrix

RUNNING = f"{CPU.name}, {TARGETS.gpu_choices()}"
GATES = {"full": ("full",), "fast": ("fast",), "both": ("full", "fast")}


def audit(
    target: Annotated[str, typer.Option(help=f"Where candidates run: {RUNNING}.", metavar="T")] = CPU.name,
    gate: Annotated[str, typer.Option(help="Which verifier: full, fast or both.", metavar="G")] = "both",
    form: Annotated[
        str | None, typer.Option("--lane", help="Only one candidate form: program or modelnew.", metavar="L")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only candidates whose form, kind or name matches, e.g. 'cache_*'.", metavar="PATTERN"),
    ] = None,
    mutants: Annotated[
        int,
        typer.Option(help="Judge N mutants of the honest programs instead (cpu).", metavar="N", min=0),
    ] = 0,
    variants: Annotated[
        int,
        typer.Option(
            help="Score the verifiers on N broken and deceptive variants instead: mutants, or a model's with --llm.",
            metavar="N",
            min=0,
        ),
    ] = 0,
    llm: Annotated[
        list[str] | None,
        typer.Option("--llm", metavar="PROVIDER:MODEL[@URL]", help="A model that writes the --variants."),
    ] = None,
    max_usd: MaxUsd = None,
    max_tokens: MaxTokens = None,
    price: Price = None,
    seed: Annotated[int | None, typer.Option(help="Draws inputs and mutants; a secret one without it.")] = None,
    workers: Annotated[int, typer.Option(help="Candidates judged at a time.", min=1)] = 2,
    timed: Annotated[bool, typer.Option("--timed", help="On a GPU: also through the checks of the clock.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write audit.json into this folder.", metavar="DIR")] = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Judge the corpus; print each verifier's confusion matrix and the screener's calibration.

    Exit 1 when a verifier is wrong about anybody.
    """
    output = CommandOutput(json_mode=json_mode)
    if gate not in GATES:
        raise BadInput(f"unknown gate {gate!r}", hint="--gate full, fast or both")
    if form not in (None, "program", "modelnew"):
        raise BadInput(f"unknown candidate form {form!r}", hint="--lane program or modelnew")
    if not TARGETS.runs(target):
        raise BadInput(f"candidates cannot run on {target!r}", hint=f"--target {RUNNING}")
    targets.choose([target])
    if mutants:
        if not TARGETS.is_host(target):
            raise BadInput("mutants are judged on the cpu target", hint="leave --target out")
        return _mutants(output, mutants, seed or 0, only or [], workers, out, unsafe)
    if variants:
        from hipwright.cli import audit_variants

        if form == "modelnew" or not TARGETS.is_host(target):
            raise BadInput("variants are programs, judged on the cpu target", hint="leave --lane and --target out")
        models = audit_variants.models(llm or (), max_usd, max_tokens, price or (), out)
        told, fooled = audit_variants.run(output, variants, seed or 0, only or [], GATES[gate], workers, unsafe, models)
        _leave(output, told, out)
        return 1 if fooled else 0
    if llm:
        raise BadInput("a model writes variants", hint="say how many: --variants N")
    return _corpus(output, target, gate, form, only or [], seed, workers, timed, out, unsafe)


def _corpus(
    output: CommandOutput,
    target: str,
    gate: str,
    form: str | None,
    only: list[str],
    seed: int | None,
    workers: int,
    timed: bool,
    out: Path | None,
    unsafe: bool,
) -> int:
    from hipwright.agents.auditors import corpus_confusions
    from hipwright.audit.bench import TargetVerifier, open_bench
    from hipwright.audit.cases import select
    from hipwright.audit.run import matrix, run
    from hipwright.cli.display import audit as audit_tables

    chosen = select(only, form=form)
    if not chosen:
        raise BadInput("no candidate matches", hint="--only takes shell patterns over form, kind and name")
    results = []
    for one in GATES[gate]:
        output.say(f"{len(chosen)} candidates through the {one} gate on {target}")
        with open_bench(TARGETS[target], seed=seed, unsafe=unsafe) as bench:
            verifier = TargetVerifier(bench, one, timed)  # type: ignore[arg-type]
            results += run(
                verifier,
                chosen,
                workers=workers,
                listener=_teller(output),
                done=_closer(bench),
            )
    found = matrix(results)
    confusions, screener = corpus_confusions(results), audit_tables.screener()
    told = {"verifiers": [m.to_dict() for m in found.values()], "confusion": [one.figures() for one in confusions]}
    _leave(output, told | {"screener": screener}, out)
    if not output.json_mode:
        _print(output, found)
        audit_tables.show_confusions(output.console(), confusions)
        audit_tables.show_screener(output.console(), screener)
    if any(m.fooled for m in found.values()):
        return 1
    return 3 if any(m.void for m in found.values()) else 0


def _mutants(
    output: CommandOutput, count: int, seed: int, only: list[str], workers: int, out: Path | None, unsafe: bool
) -> int:
    from hipwright.audit.bench import open_bench
    from hipwright.audit.mutate import run_mutants

    with open_bench(seed=seed, unsafe=unsafe) as bench:
        report = run_mutants(bench, count, seed, only, workers=workers, say=output.say)
    _leave(output, report.to_dict(), out)
    if not output.json_mode:
        _print_mutants(output, report)
    return 0 if report.good else 1


def _teller(output: CommandOutput) -> Any:
    def listener(judged: Any) -> None:
        if judged.outcome not in ("right", "not run"):
            output.say(f"{judged.verifier}: {judged.case.id} {judged.outcome}: {judged.why}")

    return listener


def _closer(bench: AuditBench) -> Callable[[CorpusCase], None]:
    """Closes a case's task once every candidate of it was judged."""
    return lambda case: bench.close(case.task_path)


def _leave(output: CommandOutput, result: dict[str, Any], out: Path | None) -> None:
    from hipwright.cli.output import print_json

    if out is not None:
        import json

        out.mkdir(parents=True, exist_ok=True)
        (out / "audit.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if output.json_mode:
        print_json(result)


def _print(output: CommandOutput, found: dict[str, Matrix]) -> None:
    from rich.table import Table

    from hipwright.audit.run import OUTCOMES

    console = output.console()
    for name, one in found.items():
        table = Table("", *OUTCOMES, "all", title=f"{name} gate", title_justify="left")
        for kind, counts in one.counts.items():
            table.add_row(kind, *(str(counts[o]) for o in OUTCOMES), str(sum(counts.values())))
        console.print(table)
        for judged in one.but_right():
            console.print(f"  {judged.outcome}: {judged.case.id}: {judged.why}", markup=False, highlight=False)


def _print_mutants(output: CommandOutput, report: MutationReport) -> None:
    console = output.console()
    console.print(report.summary(), markup=False, highlight=False)
    for mutant in report.survivors():
        console.print(f"  survived: {mutant.said()}", markup=False, highlight=False)
