"""The card of an export: README.md with the front matter that Hugging Face reads, and the figures of the rows.

All figures are counted from the rows. The card states what was verified, and what was not compiled, run or measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hipwright import __version__
from hipwright.dataset.export.format import Columns, ExportOptions, ExportPart, ExportSummary, split_name
from hipwright.dataset.export.job import ExportFormat

_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)
_TAGS = ["code", "hip", "rocm", "amd", "gpu-kernels", "pytorch", "synthetic"]


def card(
    form: ExportFormat,
    parts: Sequence[ExportPart],
    figures: Mapping[str, Any],
    written: ExportSummary,
    options: ExportOptions,
) -> str:
    """The text of README.md."""
    import yaml

    front = yaml.safe_dump(front_matter(form, parts, figures, options), sort_keys=False, allow_unicode=True, width=1000)
    sections = [
        f"# {options.title}",
        _summary(form, written, figures),
        f"## Splits\n{_splits(parts, figures)}",
        f"## What a row holds\n{form.about}\n\n{_columns(form)}",
        f"## How it was made\n{_origin(figures, options)}",
        f"## What was verified, and what was not\n{_verification(figures)}",
        f"## What is not in it\n{_not_included(written)}",
        f"## Licence\n{_licence(figures)}",
    ]
    return f"---\n{front}---\n\n" + "\n\n".join(sections) + "\n"


def front_matter(
    form: ExportFormat, parts: Sequence[ExportPart], figures: Mapping[str, Any], options: ExportOptions
) -> dict[str, Any]:
    """The front matter: licence, categories, size, the files of each split, columns and counts."""
    tables = [table for table in form.tables if any(part.table == table.name for part in parts)]
    licences = [name.lower() or "unknown" for name in figures["licences"]]
    total = sum(part.rows for part in parts)
    return {
        "license": licences[0] if len(licences) == 1 else licences,
        "task_categories": ["text-generation"],
        "language": ["en"],
        "tags": _TAGS,
        "pretty_name": options.title,
        "size_categories": [next((name for limit, name in _SIZES if total < limit), "n>10M")],
        "configs": [
            {
                "config_name": table.name,
                **({"default": True} if place == 0 and len(tables) > 1 else {}),
                "data_files": [
                    {"split": part.split, "path": _paths(part)} for part in parts if part.table == table.name
                ],
            }
            for place, table in enumerate(tables)
        ],
        "dataset_info": [
            _info(table.name, table.columns, [p for p in parts if p.table == table.name]) for table in tables
        ],
    }


def _paths(part: ExportPart) -> str | list[str]:
    return part.files[0] if len(part.files) == 1 else list(part.files)


def _info(name: str, columns: Columns, parts: Sequence[ExportPart]) -> dict[str, Any]:
    return {
        "config_name": name,
        "features": features(columns),
        "splits": [{"name": p.split, "num_bytes": p.num_bytes, "num_examples": p.rows} for p in parts],
        "download_size": sum(part.disk_bytes for part in parts),
        "dataset_size": sum(part.num_bytes for part in parts),
    }


def features(columns: Columns) -> list[dict[str, Any]]:
    """Columns as the `features` of the front matter."""
    return [{"name": name, **_feature(kind)} for name, kind in columns.items()]


def _feature(kind: Any) -> dict[str, Any]:
    if isinstance(kind, str):
        return {"dtype": kind}
    if isinstance(kind, list):
        inner = kind[0]
        return {"list": inner if isinstance(inner, str) else features(inner)}
    return {"struct": features(kind)}


# ---------------------------------------------------------------- the text


def _summary(form: ExportFormat, written: ExportSummary, figures: Mapping[str, Any]) -> str:
    pairs, tasks = _plural(figures["rows"], "pair"), _plural(figures["tasks"], "task")
    return (
        f"{_plural(written.total, 'row')} in the format `{form.name}`, made from {pairs} of a PyTorch reference "
        f"and a HIP program, over {tasks}: {figures['correct']:,} programs passed the verifier and "
        f"{figures['wrong']:,} did not. {_load_call(form)}"
    )


def _load_call(form: ExportFormat) -> str:
    names = [table.name for table in form.tables]
    calls = [f'`datasets.load_dataset("path/of/this/folder", "{name}")`' for name in names if name != "default"]
    return (
        f"Load it with {' or '.join(calls)}."
        if calls
        else 'Load it with `datasets.load_dataset("path/of/this/folder")`.'
    )


def _splits(parts: Sequence[ExportPart], figures: Mapping[str, Any]) -> str:
    known = {split_name(name): values for name, values in figures["splits"].items()}
    lines = [
        "| table | split | rows | tasks | compositions | of them also in train |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for part in parts:
        one = known.get(part.split, {"tasks": 0, "compositions": 0, "compositions_in_train": 0})
        shared = "" if part.split == "train" else f"{one['compositions_in_train']:,}"
        lines.append(
            f"| {part.table} | {part.split} | {part.rows:,} | {one['tasks']:,} | {one['compositions']:,} | {shared} |"
        )
    lines.append("\nTasks and compositions are counted over all pairs that were read.")
    if len(figures["splits"]) > 1:
        lines.append("Held out are families, compositions or shapes of operators, never rows drawn by chance.")
    if "" in figures["splits"]:
        lines.append("Rows in `unsplit` were given no split: do not call any of them held out.")
    return "\n".join(lines)


def _columns(form: ExportFormat) -> str:
    lines = []
    for table in form.tables:
        named = ", ".join(f"`{name}` ({_kind(kind)})" for name, kind in table.columns.items())
        lines.append(f"Columns of `{table.name}`: {named}." if len(form.tables) > 1 else f"Columns: {named}.")
    return "\n\n".join(lines)


def _kind(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    return f"list of {_kind(kind[0])}" if isinstance(kind, list) else f"{{{', '.join(kind)}}}"


def _origin(figures: Mapping[str, Any], options: ExportOptions) -> str:
    kinds = ", ".join(f"{count:,} {name}" for name, count in figures["kinds"].items())
    text = (
        f"By hipwright {__version__}. Pairs by kind: {kinds}. engine: the program of a deterministic engine; variant: "
        "another of its schedules; repair and step: from a search, with the program before it; negative: one that "
        "the verifier refused."
    )
    families = ", ".join(f"{name} ({count:,})" for name, count in list(figures["families"].items())[:12])
    text += f"\n\nFamilies of operators, with their tasks: {families or 'not recorded'}."
    return text + (f"\n\n```\n{options.command.strip()}\n```" if options.command.strip() else "")


def _verification(figures: Mapping[str, Any]) -> str:
    lines = [
        "- Verified: each program that is called correct was run on the cpu target (the same HIP source, compiled for "
        "the CPU) and compared with a reference in double precision, on inputs and shapes that it could not know.",
    ]
    builds = figures["builds"]
    if builds:
        done = "; ".join(f"{t}: {b['ok']:,} built, {b['failed']:,} failed" for t, b in builds.items())
        lines.append(
            f"- Compiled for AMD targets, with the register, LDS and occupancy figures of the compiler: {done}."
        )
    else:
        lines.append("- NOT compiled for any AMD target: no row holds a build.")
    timed = figures["timed"]
    amd = {name: count for name, count in timed.items() if "(gfx" in name}
    if not amd:
        lines.append("- **NOT run and NOT measured on an AMD GPU.** No row holds a time of one.")
    for name, count in timed.items():
        lines.append(f"- Measured: {_plural(count, 'row')} on {name}.")
    if figures["estimate_us"]:
        lines.append(
            "- `estimate_us` and what is derived from it are static estimates by a model, not times; "
            "their rank correlation with time on an AMD GPU is not known."
        )
    coverage = figures["coverage"]["quantiles"]
    if coverage["count"]:
        lines.append(
            f"- Coverage (the share of the reference's modelled cost that its own kernels do): median "
            f"{coverage['median']:.2f}; 0.5 or more in {figures['tasks_half_covered']:,} of {figures['tasks']:,} tasks."
        )
    lines.append(
        "- A verifier can be wrong: it samples inputs. Re-verify what matters to you (`hipwright dataset check`)."
    )
    return "\n".join(lines)


def _not_included(written: ExportSummary) -> str:
    lines = [f"- {count:,} pairs: {why}." for why, count in written.left_out.items()]
    if written.skipped:
        lines.append(f"- {_plural(len(written.skipped), 'bad row')}, each named with its reason in `skipped.jsonl`.")
    return "\n".join(lines) or "Nothing was left out of the pairs that were read."


def _licence(figures: Mapping[str, Any]) -> str:
    known = figures["licences"].items()
    return ", ".join(f"{name or 'no licence named'} ({_plural(count, 'pair')})" for name, count in known) + "."


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
