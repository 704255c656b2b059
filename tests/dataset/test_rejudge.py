"""Rows judged anew: those that hold get today's findings, those that fell are named, pasted helpers become includes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from hipwright.api.data.build import rows_of
from hipwright.api.data.hooks import evidence_text
from hipwright.dataset.export import export
from hipwright.dataset.records import Pair
from hipwright.dataset.rejudge import RejudgedRow, RejudgeReport, _work, upgraded
from hipwright.dataset.store import PAIRS, BadRow, pair_line
from hipwright.machine import Machine
from hipwright.program import parse
from hipwright.records import Program
from hipwright.toolchain import device_headers
from tests.dataset import tiny

COPY = """HIP = r'''
#include <hip/hip_runtime.h>

HELPERS
extern "C" __global__ void copy(const float* x, float* y, int n) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) y[i] = x[i];
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    copy[(x.numel() + 63) // 64, 64](x, y, x.numel())
    return y
"""
_HEAD = re.compile(r"^(?://|#pragma once|#include)[^\n]*\n", re.MULTILINE)
PASTED = COPY.replace("HELPERS", _HEAD.sub("", device_headers.text("unaligned")).replace(" inline", "")).replace(
    "#if HIPWRIGHT_AMD", "#ifdef __AMDGCN__"
)


def rejudged(machine: Machine, *pairs: Pair) -> list[RejudgedRow]:
    return _work(machine, pairs, evidence_text=evidence_text)


def test_rows_that_hold_get_the_findings_of_today_and_others_fall(machine: Machine, pairs: dict[str, Pair]) -> None:
    old = replace(pairs["engine"], coverage=0.4, builds={}, provenance={"made": {"by": "me"}, "hipwright": "0.1.0"})
    broken = replace(pairs["negative"], kind="variant", correct=True, status="pass")
    harmless = replace(pairs["engine"], kind="negative", correct=False, status="wrong_value")
    rows = rejudged(machine, old, broken, harmless, pairs["negative"])
    now = rows[0].pair
    assert now is not None and now.coverage == pairs["engine"].coverage and now.builds == pairs["engine"].builds
    assert now.provenance["made"] == {"by": "me"} and now.provenance["hipwright"] != "0.1.0"
    assert [one.pair is None for one in rows] == [False, True, True, False]
    assert "passes" in rows[2].why and rows[1].why.startswith(pairs["negative"].status)
    report = RejudgeReport(rows).to_dict()
    assert (report["rows"], report["kept"], [one["key"] for one in report["fallen"]]) == (
        4,
        2,
        [broken.key, harmless.key],
    )


@pytest.mark.slow
def test_a_repair_and_its_predecessor_are_both_judged(machine: Machine, pairs: dict[str, Pair]) -> None:
    repair = pairs["repair"]
    fell = replace(repair, before=pairs["variant"].program)
    kept, gone = rejudged(machine, repair, fell)
    assert kept.pair is not None and kept.pair.evidence
    assert gone.pair is None and "the program before is called wrong: pass" in gone.why


def test_a_broken_task_takes_its_rows_along(machine: Machine, pairs: dict[str, Pair]) -> None:
    (found,) = rejudged(machine, replace(pairs["engine"], task_source=tiny.RANDOM))
    assert found.pair is None and not found.void and "generator" in found.why


def test_pasted_helpers_become_includes_and_other_programs_stay() -> None:
    program = upgraded(Program(text=PASTED))
    parse(program.text)
    assert "__AMDGCN__" in PASTED and "__AMDGCN__" not in program.text
    assert program.text[program.text.index('extern "C"') :] == PASTED[PASTED.index('extern "C"') :]
    assert upgraded(program) == program


def test_rows_are_read_from_a_data_set_a_file_and_an_export(tmp_path: Path, pairs: dict[str, Pair]) -> None:
    rows = [replace(pair, split="train") for pair in pairs.values()]
    (tmp_path / PAIRS).write_bytes(b"".join(map(pair_line, rows)))
    folder = tmp_path / "export"
    export("jsonl", rows, folder)
    for path in (tmp_path, tmp_path / PAIRS, folder):
        bad: list[BadRow] = []
        assert {one.key for one in rows_of(path, bad)} == {one.key for one in rows} and not bad
