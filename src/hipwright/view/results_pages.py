"""The pages of folders of results: their list, one of them, two of a kind."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from hipwright.errors import BadInput
from hipwright.view.audit_results import audit_page, compare_audits
from hipwright.view.bench_results import bench_page, compare_benches
from hipwright.view.results import ResultFolder, ResultFolders
from hipwright.view.training_results import compare_trainings, training_page

ONE: dict[str, Callable[[ResultFolder], dict[str, Any]]] = {
    "bench": bench_page,
    "audit": audit_page,
    "training": training_page,
}
TWO: dict[str, tuple[str, Callable[[ResultFolder, ResultFolder], dict[str, Any]]]] = {
    "bench": ("compare_bench", compare_benches),
    "audit": ("compare_audit", compare_audits),
    "training": ("training", compare_trainings),
}
"""By kind: the template of a comparison, and what it shows."""


def results_page(folders: ResultFolders) -> dict[str, Any]:
    """The list, the last changed first."""
    rows = [(one, time.strftime("%Y-%m-%d %H:%M", time.localtime(one.changed))) for one in folders.all()]
    return {"roots": [str(root) for root in folders.roots], "rows": rows}


def result_page(folders: ResultFolders, key: str) -> tuple[str, dict[str, Any]]:
    """(the template, what it shows) of one folder."""
    folder = folders.get(key)
    return folder.kind, {"folder": folder, "state": json.dumps(folder.changed), **ONE[folder.kind](folder)}


def compare_results(folders: ResultFolders, query: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """(the template, what it shows) of two folders. query: a and b, their keys. BadInput for two of different kinds."""
    a, b = (folders.get(query.get(side, "")) for side in ("a", "b"))
    if a.kind != b.kind:
        raise BadInput(f"results of {a.kind} cannot be compared with those of {b.kind}", hint="choose two of a kind")
    template, compare = TWO[a.kind]
    return template, {"sides": (a, b), **compare(a, b)}
