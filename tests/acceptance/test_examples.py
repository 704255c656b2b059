"""The main job on every shipped example: each ends with a verified program, most with only products left over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hipwright.measure.cost import is_product
from tests import warm

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
ODD = sorted((Path(__file__).parent / "tasks").glob("*.py"))  # what a KernelBench-form file may also hold
# operators outside products that the engine leaves to the library (docs/engine.md)
LIBRARY_OK = {"topk_routing": {"topk"}, "nested": {"contiguous"}}


def optimize(example: Path, out: Path) -> dict[str, Any]:
    args = ("optimize", example, "--budget", 2, "--out", out, "--json")
    done = warm.hipwright(out, *args, env={"HIPWRIGHT_HOME": str(out / "home")})
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_there_are_thirty() -> None:
    assert len(EXAMPLES) >= 30


@pytest.mark.slow
@pytest.mark.matrix(keep=7)
@pytest.mark.parametrize("example", [*EXAMPLES, *ODD], ids=lambda path: path.stem)
def test_example_ends_with_a_verified_program(example: Path, tmp_path: Path) -> None:
    result = optimize(example, tmp_path)
    assert result["status"] == "pass"
    assert result["targets"]["cpu"]["verdict"]["status"] == "pass"
    assert result["targets"]["gfx942"]["build"]["ok"] and result["targets"]["gfx950"]["build"]["ok"]
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        "program.py",
        "model_new.py",
        "result.json",
        "report.html",
    }
    assert {op for op in result["library"] if not is_product(op)} <= LIBRARY_OK.get(example.stem, set())
