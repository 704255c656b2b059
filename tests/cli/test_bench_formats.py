"""`hipwright bench` on folders of other benchmarks' formats, on the cpu target: the folders of `examples/formats`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_tools import EXAMPLES, hipwright, one_object

FORMATS = EXAMPLES / "formats"
BASE = ("--target", "cpu", "--json")
TASKS = {
    "backendbench": ["pointwise/addcmul__default", "pointwise/hardswish__default", "reduction/mean__dim"],
    "flashinfer-trace": ["norm/rms_rows_h96", "paged/gather_pages_p4_d16", "rope/turn_halves_d32"],
    "gpu-mode": ["first_set/shifted_sum", "second_set/in_place_scale"],
    "kernelbench": ["level1/1_Hard_shrink", "level2/1_Scaled_linear"],
    "kernelbench-x": ["Activation/soft_step", "Reduction/spread"],
    "multikernelbench": ["activation/bent_identity", "reduce/mean_of_squares"],
    "robust-kbench": ["row_gate/forward", "row_gate/backward"],
    "sol-execbench": ["L1/scaled_residual", "L2/ragged_mean"],
}
OFF_BY_A_PART = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, eps):
        wide = x.to(torch.float32)
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
        return (wide * scale * weight * 1.006).to(x.dtype)
"""


@pytest.mark.slow
@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("name", TASKS)
def test_every_example_is_judged_right(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = hipwright(tmp_path / "home", "bench", FORMATS / name, *BASE, "--budget", 1, "--out", out)
    assert done.returncode == 0, done.stderr
    found = one_object(done.stdout)
    assert [(row["task"], row["status"]) for row in found["rows"]] == [(task, "pass") for task in TASKS[name]]
    assert found["format"]["name"] == name and found["format"]["tolerance"]
    categories = found["categories"]
    assert list(categories) == list(dict.fromkeys(row["category"] for row in found["rows"])) and "" not in categories
    assert all(one["correct"]["count"] == one["judged"] == one["tasks"] for one in categories.values())
    assert {row["by_format"] for row in found["rows"]} in ({None}, {"pass"})
    page = (out / "bench.html").read_text()
    assert "By category" in page and f"The rules of {found['format']['title']}" in page
    made = {path.relative_to(out / "tasks").with_suffix("").as_posix() for path in (out / "tasks").rglob("*.py")}
    assert made == (set() if name in ("kernelbench", "multikernelbench") else set(TASKS[name]))


@pytest.mark.slow
def test_the_formats_verdict_stands_beside_ours_and_a_malformed_task_beside_the_others(tmp_path: Path) -> None:
    folder, given = tmp_path / "trace", tmp_path / "given"
    shutil.copytree(FORMATS / "flashinfer-trace", folder)
    (folder / "definitions" / "rope" / "turn_halves_d32.json").write_text('{"name": "x"}')
    given.mkdir()
    (given / "rms_rows_h96.py").write_text(OFF_BY_A_PART)
    done = hipwright(tmp_path / "home", "bench", folder, *BASE, "--candidates", given)
    assert done.returncode == 0, done.stderr
    found = one_object(done.stdout)
    ours, missing, malformed = found["rows"]
    assert missing["status"] == "missing" and missing["by_format"] is None
    assert (ours["status"], ours["by_format"]) == ("wrong_value", "pass"), ours
    assert (found["correct"]["count"], found["by_format"]["count"]) == (0, 1)
    why = "definitions/rope/turn_halves_d32.json: axes: missing"
    assert (malformed["status"], malformed["fault"], malformed["message"]) == ("unscorable", "task", why)
    assert found["not_judged"] == {"task": 1} and f"no task: {why}" in done.stderr


def test_formats_that_cannot_be_forced(tmp_path: Path) -> None:
    for arguments, why in [
        ((FORMATS / "gpu-mode", "--format", "triton"), "no such format: triton"),
        ((FORMATS / "gpu-mode", "--format", "sol-execbench"), "no tasks in"),
        ((FORMATS / "gpu-mode", "--level", 1), "which has no levels"),
        ((EXAMPLES / "mlp_gelu.py", "--format", "kernelbench"), "is one task file"),
    ]:
        done = hipwright(tmp_path / "home", "bench", *arguments, *BASE)
        assert done.returncode == 2 and why in one_object(done.stdout)["error"], done.stdout


@pytest.mark.slow
def test_a_formats_own_answers_are_judged(tmp_path: Path) -> None:
    folder = FORMATS / "flashinfer-trace"
    done = hipwright(tmp_path / "home", "bench", folder, *BASE, "--candidates", folder)
    assert done.returncode == 0, done.stderr
    rows = one_object(done.stdout)["rows"]
    statuses = [(row["task"], row["candidate"], row["status"]) for row in rows]
    assert statuses == [
        ("norm/rms_rows_h96", "rms_rows_torch.json", "pass"),
        ("paged/gather_pages_p4_d16", "", "missing"),
        ("rope/turn_halves_d32", "turn_halves_cuda.json", "malformed"),
        ("rope/turn_halves_d32", "turn_halves_torch.json", "pass"),
    ]
    assert rows[2]["fault"] == "candidate" and "only python and triton are read" in rows[2]["message"]
