"""Names of GPU targets and architectures stand in hipwright.targets; other code asks a target, or dispatches by it."""

from __future__ import annotations

import ast
from pathlib import Path

import hipwright
from hipwright.audit.cases import CORPUS
from hipwright.targets import TARGETS, TORCH_GPU, TORCH_GPU_0

SOURCE = Path(hipwright.__file__).parent
ARCHITECTURES = {one.name for target in TARGETS for one in target.architectures}
LITERALS = {*(target.name for target in TARGETS.gpus), *ARCHITECTURES, TORCH_GPU, TORCH_GPU_0}
ALLOWED = {
    "targets/*": "where they are defined",
    "api/live/*": "torch's names of devices",
    "api/start/reading.py": "a dialect of C++",
    "ship/runtime/*": "copied into users' packages, which do not have hipwright",
    "dataset/export/card.py": "tags of a dataset card",
    "device/nvidia/driver.py": "the key of an error's evidence",
    "evaluation/formats/portable.py": "devices and methods of a tensor in other benchmarks' texts",
    "llm/answers/blocks.py": "languages of code fences in models' answers",
    "llm/answers/checks.py": "attributes of torch in a program's text",
    "mcp/searches.py": "a dialect of C++",
    "program/convert/*": "methods of a tensor in a program's and in C++ text",
    "program/language.py": "methods of a tensor in a program's text",
    "program/modelnew/names.py": "attributes of torch in a program's text",
    "program/standalone/*": "a dialect of C++",
    "ship/formats/hf_kernels.py": "kernel-builder's own backends and architectures",
    "ship/hub/launchers.py": "torch's name of a device, copied into users' packages",
    "synth/check.py": "methods of a tensor in a task's text",
    "train/rl/checkpoint.py": "a key of checkpoint files",
}
"""Where a literal is something else than a target or torch's device, and what it is."""


def literals(path: Path) -> set[int]:
    """The lines of the string constants of a module that are such a name (docstrings and f-strings are prose)."""
    text = path.read_text(encoding="utf-8")
    if not any(literal in text for literal in LITERALS):
        return set()
    tree = ast.parse(text)
    return {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value in LITERALS}


def test_no_stray_literals() -> None:
    """And no exception that nothing needs."""
    found: dict[str, set[int]] = {}
    used = set()
    modules = (path for path in sorted(SOURCE.rglob("*.py")) if CORPUS not in path.parents)
    for path in modules:
        place = path.relative_to(SOURCE)
        rule = next((rule for rule in ALLOWED if place.match(rule) or _below(place, rule)), None)
        if lines := literals(path):
            if rule is None:
                found[str(place)] = lines
            else:
                used.add(rule)
    assert not found, "ask hipwright.targets instead"
    assert used == set(ALLOWED)


def _below(place: Path, rule: str) -> bool:
    folder = rule.removesuffix("/*")
    return rule.endswith("/*") and place.is_relative_to(folder)
