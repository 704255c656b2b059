"""The audit that searches for wrong programs which pass (docs/audit.md, "Evolving audit")."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from hipwright.agents.auditors import llm_variants
from hipwright.api.model_access import ModelAccess, open_client
from hipwright.audit.verifiers import open_audit
from hipwright.errors import BadInput
from hipwright.events import Listener, silent

if TYPE_CHECKING:
    from hipwright.audit.evolve.evolution import WrittenVariants
    from hipwright.audit.evolve.results import EvolutionReport

MODEL_VARIANTS = 40
"""Variants that a model is asked for."""


def audit_evolution(
    *,
    seconds: float,
    tasks: Sequence[Path] = (),
    only: Sequence[str] = (),
    seed: int = 0,
    workers: int = 2,
    unsafe: bool = False,
    keep: bool = False,
    access: ModelAccess | None = None,
    folder: Path | None = None,
    listener: Listener = silent,
) -> EvolutionReport:
    """Searches for `seconds` over the corpus's tasks and those of `tasks` (files and folders).

    only: shell patterns over tasks' names. folder: for survivors and refused honest variants as files. keep: survivors
    become files of the corpus. access: a model that writes some of the programs; it judges none. Events for the
    listener: "note" {text} for progress and each finding.
    """
    from hipwright.audit.evolve.evolution import Evolution, audit_tasks, save
    from hipwright.audit.evolve.evolution import keep as keep_in_corpus

    chosen = audit_tasks(tasks, only)
    if not chosen:
        raise BadInput("no task matches", hint="--only takes shell patterns over tasks' names")
    written = _written(access, seed, folder, listener)
    with open_audit(seed=seed, unsafe=unsafe) as session:
        report = Evolution(
            session,
            chosen,
            seed,
            seconds,
            workers=workers,
            written=written,
            log=lambda text: listener("note", {"text": text}),
        ).run()
    if folder is not None:
        save(report, folder)
    if keep:
        for path in keep_in_corpus(report):
            listener("note", {"text": f"added {path}"})
    return report


def _written(access: ModelAccess | None, seed: int, folder: Path | None, listener: Listener) -> WrittenVariants:
    """A model's variants of honest programs of the corpus: {case id: [(claim, text)]}."""
    if access is None:
        return {}
    with ExitStack() as stack:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        logged = stack.enter_context(open_client(access, folder, silent))
        made, failed = llm_variants(MODEL_VARIANTS, seed, logged.client, access.lineup)
    for error in failed:
        listener("note", {"text": f"a call for variants failed: {error.message}"})
    found: dict[str, list[tuple[str, str]]] = {}
    for one in made:
        found.setdefault(one.of, []).append((one.claim, one.text))
    return found
