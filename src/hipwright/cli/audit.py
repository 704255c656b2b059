"""`hipwright audit`: the verifiers on candidates that are known to be honest, broken or hostile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hipwright.api import targets
from hipwright.cli import exit_codes
from hipwright.cli.options import Fleet, Json, MaxTokens, MaxUsd, Place, Price, Unsafe
from hipwright.cli.output import CommandOutput
from hipwright.errors import BadInput
from hipwright.targets import CPU, TARGETS

if TYPE_CHECKING:
    from hipwright.api.model_access import ModelAccess
    from hipwright.verify.verification import Gate

RUNNING = f"{CPU.name}, {TARGETS.gpu_choices()}"
GATES: dict[str, tuple[Gate, ...]] = {"full": ("full",), "fast": ("fast",), "both": ("full", "fast")}

On = Annotated[str, typer.Option("--target", help=f"Where candidates run: {RUNNING}.", metavar="T")]
GateChoice = Annotated[str, typer.Option(help="Which verifier: full, fast or both.", metavar="G")]
FormChoice = Annotated[
    str | None, typer.Option("--lane", help="Only one candidate form: program or modelnew.", metavar="L")
]
Only = Annotated[
    list[str] | None,
    typer.Option(help="Only candidates whose form, kind or name matches, e.g. 'cache_*'.", metavar="PATTERN"),
]
Mutants = Annotated[int, typer.Option(help="Judge N mutants of the honest programs instead (cpu).", metavar="N", min=0)]
Variants = Annotated[
    int,
    typer.Option(
        help="Score the verifiers on N broken and deceptive variants instead: mutants, or a model's with --llm.",
        metavar="N",
        min=0,
    ),
]
VariantLlm = Annotated[
    list[str] | None,
    typer.Option("--llm", metavar="PROVIDER:MODEL[@URL]", help="A model that writes --variants, or some for --evolve."),
]
Evolve = Annotated[
    bool, typer.Option("--evolve", help="Search for wrong programs that pass instead, and judge honest variants (cpu).")
]
Seconds = Annotated[float, typer.Option(help="How long --evolve searches.", metavar="S", min=1.0)]
Tasks = Annotated[
    list[Path] | None,
    typer.Option("--task", help="A task file or a folder of them, for --evolve, beside the corpus's.", metavar="PATH"),
]
Keep = Annotated[bool, typer.Option("--keep", help="Add what --evolve found to the corpus.")]
Seed = Annotated[int | None, typer.Option(help="Draws inputs and mutants; a secret one without it.")]
Workers = Annotated[
    int | None, typer.Option(help="Candidates at a time. [default: 2; of a fleet, its seats]", min=1, metavar="N")
]
Timed = Annotated[bool, typer.Option("--timed", help="On a GPU: also through the checks of the clock.")]
Out = Annotated[Path | None, typer.Option(help="Write audit.json into this folder.", metavar="DIR")]


def audit(
    target: On = CPU.name,
    gate: GateChoice = "both",
    form: FormChoice = None,
    only: Only = None,
    mutants: Mutants = 0,
    variants: Variants = 0,
    evolve: Evolve = False,
    seconds: Seconds = 300.0,
    task: Tasks = None,
    keep: Keep = False,
    llm: VariantLlm = None,
    max_usd: MaxUsd = None,
    max_tokens: MaxTokens = None,
    price: Price = None,
    seed: Seed = None,
    workers: Workers = None,
    timed: Timed = False,
    out: Out = None,
    fleet: Fleet = "",
    place: Place = "",
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Judge the corpus; print each verifier's confusion matrix and the screener's calibration.

    Exit 1 when a verifier is wrong about anybody.
    """
    from hipwright.api.fleet.choice import FleetChoice

    output = CommandOutput(json_mode=json_mode)
    _check(target, gate, form)
    far = FleetChoice(fleet, place)
    if far and (mutants or variants or evolve):
        raise BadInput("a fleet judges the corpus", hint="leave --mutants, --variants and --evolve out, or --fleet")
    how: dict[str, Any] = {"only": only or [], "unsafe": unsafe, "listener": output.stages()}
    if workers and (mutants or variants or evolve):
        how["workers"] = workers
    if mutants:
        if not TARGETS.is_host(target):
            raise BadInput("mutants are judged on the cpu target", hint="leave --target out")
        return _mutants(output, mutants, out, seed=seed or 0, **how)
    if variants:
        if form == "modelnew" or not TARGETS.is_host(target):
            raise BadInput("variants are programs, judged on the cpu target", hint="leave --lane and --target out")
        access = _access(llm, max_usd, max_tokens, price)
        return _variants(output, variants, gate, out, seed=seed or 0, access=access, **how)
    if evolve:
        if form == "modelnew" or not TARGETS.is_host(target):
            raise BadInput("--evolve judges programs on the cpu target", hint="leave --lane and --target out")
        access = _access(llm, max_usd, max_tokens, price)
        search: dict[str, Any] = {"seconds": seconds, "tasks": task or [], "keep": keep}
        return _evolve(output, out, seed=seed or 0, access=access, **search, **how)
    if task or keep:
        raise BadInput("--task and --keep belong to a search for wrong programs", hint="add --evolve")
    if llm:
        raise BadInput("a model writes variants", hint="say how many: --variants N")
    return _corpus(output, target, gate, out, form=form, seed=seed, timed=timed, workers=workers, fleet=far, **how)


def _check(target: str, gate: str, form: str | None) -> None:
    """Raises BadInput for an unknown gate or form, and for a target that cannot judge candidates."""
    if gate not in GATES:
        raise BadInput(f"unknown gate {gate!r}", hint="--gate full, fast or both")
    if form not in (None, "program", "modelnew"):
        raise BadInput(f"unknown candidate form {form!r}", hint="--lane program or modelnew")
    if not TARGETS.runs(target):
        raise BadInput(f"candidates cannot run on {target!r}", hint=f"--target {RUNNING}")
    targets.choose([target])


def _access(
    llm: list[str] | None, max_usd: float | None, max_tokens: int | None, price: list[str] | None
) -> ModelAccess | None:
    """The models that write variants; None without any. BadInput for limits without a model."""
    if not llm:
        if max_usd is not None or max_tokens is not None or price:
            raise BadInput("limits and prices are a model's", hint="--llm PROVIDER:MODEL")
        return None
    from hipwright.api.model_access import model_access

    return model_access(llm, max_usd=max_usd, max_tokens=max_tokens, prices=price or ())


def _corpus(output: CommandOutput, target: str, gate: str, out: Path | None, **how: Any) -> int:
    from hipwright.api.audit import audit_corpus
    from hipwright.cli.display.audit import print_confusions, print_dropped, print_matrices, print_screener

    found = audit_corpus(TARGETS[target], GATES[gate], **how)
    _write(output, found.summary(), out)
    if not output.json_mode:
        print_matrices(output.console(), found.matrices)
        print_confusions(output.console(), found.confusions)
        print_dropped(output.console(), found.dropped)
        print_screener(output.console(), found.screener)
    if found.fooled:
        return exit_codes.FAILED
    return exit_codes.INFRASTRUCTURE if found.void else 0


def _mutants(output: CommandOutput, count: int, out: Path | None, **how: Any) -> int:
    from hipwright.api.audit import audit_mutants
    from hipwright.cli.display.audit import print_mutants

    report = audit_mutants(count, **how)
    _write(output, report.to_dict(), out)
    if not output.json_mode:
        print_mutants(output.console(), report)
    return 0 if report.passed else exit_codes.FAILED


def _variants(output: CommandOutput, count: int, gate: str, out: Path | None, **how: Any) -> int:
    from hipwright.api.audit import audit_variants
    from hipwright.cli.display.audit import print_confusions

    found = audit_variants(count, GATES[gate], folder=out, **how)
    if not output.json_mode:
        counts = ", ".join(f"{n} {truth}" for truth, n in found.truths.items())
        output.console().print(f"{len(found.scored)} variants: {counts}")
        print_confusions(output.console(), found.confusions)
    _write(output, found.summary(), out)
    return exit_codes.FAILED if found.fooled else 0


def _evolve(output: CommandOutput, out: Path | None, **how: Any) -> int:
    from hipwright.api.evolve import audit_evolution
    from hipwright.cli.display.evolve import print_evolution

    report = audit_evolution(folder=out, **how)
    _write(output, report.to_dict(), out)
    if not output.json_mode:
        print_evolution(output.console(), report)
    return exit_codes.FAILED if report.failed else 0


def _write(output: CommandOutput, result: dict[str, Any], out: Path | None) -> None:
    """Writes audit.json into the folder, and with --json prints the object."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "audit.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if output.json_mode:
        output.result(result)
