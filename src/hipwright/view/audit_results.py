"""Audits: the figures and lists of an audit.json of any form, and two of them side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hipwright.report.formatting import number
from hipwright.view.results import ResultFolder, read_object

MOST_ROWS = 500
DEEPEST = 5


@dataclass(frozen=True)
class AuditTable:
    """A list of objects as a table: its name, its columns, the rows as text. of: rows, of which it may show a part."""

    name: str
    columns: list[str]
    rows: list[list[str]]
    of: int


def audit_page(folder: ResultFolder) -> dict[str, Any]:
    """What the page of an audit shows."""
    found = read_object(folder.path / "audit.json")
    plain = {name: one for name, one in found.items() if not isinstance(one, list)}
    ordered = sorted(tables(found), key=lambda table: table.name != "confusion")
    return {"title": folder.name, "facts": list(facts(plain).items()), "tables": ordered}


def compare_audits(a: ResultFolder, b: ResultFolder) -> dict[str, Any]:
    """The figures of both, and the cases that they judge differently."""
    first, second = (read_object(folder.path / "audit.json") for folder in (a, b))
    figures = [facts(first), facts(second)]
    cases = [dict(_outcomes(first)), dict(_outcomes(second))]
    changed = [
        (*key, cases[0].get(key, "–"), cases[1].get(key, "–"))
        for key in {**cases[0], **cases[1]}
        if cases[0].get(key) != cases[1].get(key)
    ]
    names = {**figures[0], **figures[1]}
    return {
        "facts": [(name, figures[0].get(name, "–"), figures[1].get(name, "–")) for name in names],
        "changed": changed[:MOST_ROWS],
        "of": len(changed),
    }


def facts(value: Any, name: str = "", deep: int = 0) -> dict[str, str]:
    """Every figure outside of long lists, by its path."""
    if isinstance(value, Mapping) and deep < DEEPEST:
        found: dict[str, str] = {}
        for key, one in value.items():
            found |= facts(one, f"{name} {str(key).replace('_', ' ')}".strip(), deep + 1)
        return found
    if isinstance(value, list) and value and all(isinstance(one, dict) and "verifier" in one for one in value):
        found = {}
        for one in value:
            plain = {key: of for key, of in one.items() if key != "verifier"}
            found |= facts(plain, f"{name} {one['verifier']} {one.get('form', '')}".strip(), deep + 1)
        return found
    text = _text(value)
    return {} if text is None or not name else {name: text}


def tables(value: Any, name: str = "", deep: int = 0) -> Iterator[AuditTable]:
    """Every list of objects, as a table."""
    if isinstance(value, Mapping) and deep < DEEPEST:
        for key, one in value.items():
            yield from tables(one, f"{name} {str(key).replace('_', ' ')}".strip(), deep + 1)
    elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        columns = [key for key in dict.fromkeys(key for one in value for key in one) if _shown(value, key)]
        rows = [[_text(one.get(key)) or "" for key in columns] for one in value[:MOST_ROWS]]
        yield AuditTable(name, [column.replace("_", " ") for column in columns], rows, len(value))
        for one in value:
            for key, inner in one.items():
                if isinstance(inner, list) and deep < DEEPEST:
                    label = f"{one.get('verifier', '')} {str(key).replace('_', ' ')}".strip()
                    yield from tables(inner, f"{name}, {label}", deep + 2)


def _shown(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    return any(_text(one.get(key)) for one in rows)


def _text(value: Any) -> str | None:
    """A value in a cell; None for what is no figure, word or short list of them."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) <= 8 and all(isinstance(one, (int, float, str)) for one in value):
        return ", ".join(_text(one) or "" for one in value)
    return None


def _outcomes(found: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], str]]:
    """((verifier, case), outcome) of an audit of the corpus."""
    verifiers = found.get("verifiers")
    for one in verifiers if isinstance(verifiers, list) else ():
        cases = one.get("cases") if isinstance(one, dict) else None
        for case in cases if isinstance(cases, list) else ():
            if isinstance(case, dict):
                yield (str(one.get("verifier")), str(case.get("case"))), f"{case.get('outcome')}: {case.get('found')}"
