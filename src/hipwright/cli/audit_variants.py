"""`audit --variants N`: the verifiers scored on broken and deceptive variants, by the engine mind or a model's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipwright.cli.output import CommandOutput
from hipwright.errors import BadInput

if TYPE_CHECKING:
    from hipwright.agents.auditors import ScoredVariant, Variant
    from hipwright.api.connection import ModelAccess


def models(
    specs: Sequence[str], max_usd: float | None, max_tokens: int | None, prices: Sequence[str], out: Path | None
) -> tuple[ModelAccess, Path | None] | None:
    """What the options say of models, None for the engine mind. Raises BadInput."""
    if not specs:
        if max_usd is not None or max_tokens is not None or prices:
            raise BadInput("limits and prices are a model's", hint="--llm PROVIDER:MODEL")
        return None
    from hipwright.api.connection import model_access

    found = model_access(specs, max_usd=max_usd, max_tokens=max_tokens, prices=prices)
    return found, out


def run(
    output: CommandOutput,
    count: int,
    seed: int,
    only: Sequence[str],
    gates: Sequence[str],
    workers: int,
    unsafe: bool,
    asked: tuple[ModelAccess, Path | None] | None,
) -> tuple[dict[str, Any], bool]:
    """Make, label and score the variants; print. -> (the result, whether a verifier was wrong about one)."""
    from hipwright.agents.auditors import Auditor, variant_confusions
    from hipwright.audit.bench import open_bench
    from hipwright.cli.display import audit as audit_tables

    made = _made(output, count, seed, only, asked)
    with open_bench(seed=seed, unsafe=unsafe) as bench:
        auditor = Auditor(bench, gates)  # type: ignore[arg-type]
        scored = auditor.score(made, workers=workers, listener=lambda one: _tell(output, one))
    confusions = variant_confusions(scored)
    truths = dict(Counter(one.truth for one in scored))
    if not output.json_mode:
        output.console().print(f"{len(scored)} variants: " + ", ".join(f"{n} {truth}" for truth, n in truths.items()))
        audit_tables.show_confusions(output.console(), confusions)
    told = {
        "variants": [one.to_dict() for one in scored],
        "truths": truths,
        "confusion": [one.figures() for one in confusions],
    }
    return told, any(one.fooled for one in confusions)


def _made(
    output: CommandOutput, count: int, seed: int, only: Sequence[str], asked: tuple[ModelAccess, Path | None] | None
) -> list[Variant]:
    from hipwright.agents.auditors import engine_variants, llm_variants
    from hipwright.events import silent

    if asked is None:
        return _some(engine_variants(count, seed, only))
    from hipwright.api.connection import open_connection

    wanted, out = asked
    with ExitStack() as stack:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        line = stack.enter_context(open_connection(wanted, out, silent))
        made, failed = llm_variants(count, seed, line.client, wanted.lineup, only)
    if failed and not made:
        raise failed[0]
    for error in failed:
        output.say(f"a call for variants failed: {error.message}")
    return _some(made)


def _some(made: list[Variant]) -> list[Variant]:
    if not made:
        raise BadInput("there are no variants", hint="--only takes shell patterns over form, kind and name")
    return made


def _tell(output: CommandOutput, one: ScoredVariant) -> None:
    wrong = {"wrong": "accepted", "equivalent": "refused"}.get(one.truth)
    for verifier, said in one.said.items():
        if said == wrong:
            output.say(
                f"{verifier} {said} a variant of {one.variant.of} that is {one.truth} ({one.why}): {one.variant.claim}"
            )
