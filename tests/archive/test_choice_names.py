"""Records of version 0.1 are read with the present names of choices (archive/choice_names.py)."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch

from hipwright.archive import Archive
from hipwright.archive.choice_names import KNOBS, STRUCTURES, current_choices, current_notes
from hipwright.archive.log import read_log
from hipwright.engine import space
from hipwright.engine.knobs import KNOBS as SHARED
from hipwright.engine.tuned import TuningCache
from hipwright.search.operators import complete
from tests.engine.harness import captured

FILES = Path(__file__).parent / "version_0_1"
DEVICE = "estimate gfx942,gfx950"


class LongSoftmax(torch.nn.Module):
    """The module of the old search."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 0.5, dim=-1)


GRAPH = captured(LongSoftmax(), [torch.empty(2, 70000)])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with the old archive and the old tuning cache."""
    (tmp_path / "archive.sqlite").write_bytes(gzip.decompress((FILES / "archive.sqlite.gz").read_bytes()))
    (tmp_path / "tuned.jsonl").write_bytes((FILES / "tuned.jsonl").read_bytes())
    return tmp_path


def test_names_of_the_first_version_become_the_present_ones() -> None:
    old = {"team:softmax_kernel": True, "columns:sum_1": "on the way", "TEAM_2": 8, "PACKS": 2, "map:x": "columns"}
    new = {"cooperative:softmax_kernel": True, "column_sums:sum_1": "fused", "COOP_BLOCKS_2": 8, "VECS": 2}
    new["map:x"] = "columns"
    assert current_choices(old) == new == current_choices(new)


def test_no_name_of_the_first_version_has_a_new_meaning() -> None:
    assert not {*KNOBS, *SHARED} & set(KNOBS.values())
    assert not set(STRUCTURES) & set(STRUCTURES.values())


def test_notes_name_the_author() -> None:
    old = {"mind": "llm", "screener": {"mind": "llm", "passes": 0.5}, "role": "optimizer"}
    assert current_notes(old) == {
        "author": "llm",
        "screener": {"author": "llm", "passes": 0.5},
        "role": "optimizer",
    }


def test_proposals_of_an_old_archive_choose_from_the_present_space(home: Path) -> None:
    (run,) = (archive := Archive(home)).runs()
    proposed = read_log(archive.events(run.id)).proposed.values()
    assert len(proposed) == 6 and {p.author for p in proposed} == {"engine"}
    offered = space(GRAPH)
    for proposal in proposed:
        known = {key: value for key, value in proposal.choices.items() if key in offered}
        assert complete(offered, proposal.choices).items() >= known.items()
        assert len(known) >= len(offered) - 1, proposal.choices


def test_an_old_tuning_cache_answers(home: Path) -> None:
    found = TuningCache(home).best([DEVICE], GRAPH, space(GRAPH))
    assert found is not None and found.choices["COOP_BLOCKS"] == 16 and found.choices["lds_cache:softmax_mul"] is True
    assert set(found.choices) == set(space(GRAPH))
