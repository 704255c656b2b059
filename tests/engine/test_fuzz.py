"""Generated graphs of every family of templates are right; and a planted fault is found, shrunk and written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from benchmarks.fuzz import campaign, judge
from benchmarks.fuzz.campaign import DIED, read_record, run_batch
from benchmarks.fuzz.families import FAMILIES
from benchmarks.fuzz.graphs import FuzzCase, cases
from benchmarks.fuzz.judge import opened
from hipwright.engine import write

GRAPHS = 3
SEED = 0


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_generated_graphs_are_right(family: str, tmp_path: Path) -> None:
    result = run_batch(family, SEED, tmp_path, graphs=GRAPHS)
    assert not result.fault, (tmp_path / result.file).read_text()
    assert result.graphs >= 1 and result.shapes >= result.graphs


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(FAMILIES)).flatmap(cases))
def test_a_generated_graph_is_a_task_that_torch_runs(case: FuzzCase) -> None:
    model, inputs = opened(case.text)
    try:
        with torch.no_grad():
            outputs = model(*inputs)
    except (RuntimeError, NotImplementedError, ValueError, IndexError):  # what the meta device takes and the CPU not
        return
    assert all(isinstance(o, torch.Tensor) for o in (outputs if isinstance(outputs, tuple) else (outputs,)))


def test_the_strategies_reach_strided_inputs_half_types_and_several_outputs() -> None:
    for wanted in (".transpose(", ".expand(", "bfloat16", "return t1, t0"):
        found = find(
            cases("pointwise"),
            lambda case, wanted=wanted: wanted in case.text,
            settings=settings(deadline=None, max_examples=2000),
        )
        assert wanted in found.text


def wrong_tanh(number: int, graph: Any) -> Any:
    made = write(graph)
    return msgspec.structs.replace(made, text=made.text.replace("tanhf(", "0.9f * tanhf("))


@pytest.mark.slow
def test_a_planted_fault_is_found_shrunk_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "write_as", wrong_tanh)
    monkeypatch.setattr(campaign, "SHRINK_S", 20.0)
    found = [run_batch("pointwise", seed, tmp_path, graphs=12) for seed in range(2)]
    faults = [one for one in found if one.fault]
    assert faults and {one.fault for one in faults} == {"wrong_value"}
    text = (tmp_path / faults[0].file).read_text()
    assert "tanh" in text and text.count(" = torch.") + text.count(" = F.") <= 3, text
    assert not list(tmp_path.glob("current-*"))


def test_a_campaign_goes_on_and_names_the_graph_with_which_its_process_died(tmp_path: Path) -> None:
    (tmp_path / "current-rows-7.py").write_text("import torch\n")
    assert next(campaign.campaign(["rows"], 0.0, 7, tmp_path)).fault == DIED
    assert [row["seed"] for row in read_record(tmp_path)] == [7]
    assert (tmp_path / f"rows_7_{DIED}.py").exists()
    assert list(campaign.campaign(["rows"], 0.0, 7, tmp_path)) == []
