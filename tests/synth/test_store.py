"""The folder of synthesised tasks: recovery from truncated files, refusal of other settings, locking."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hipwright.errors import BadInput
from hipwright.synth.records import Draft, DroppedDraft, SyntheticTask
from hipwright.synth.store import BATCH, DROPPED, MANIFEST, TASKS, SynthStore, read_manifest
from tests.synth.reading import read_dropped, read_tasks

SETTINGS = {"seed": 0, "modes": ["composition"]}
COUNT = 12


def draft(index: int) -> Draft:
    return Draft(name=f"task_{index}", source=f"# é {index}\n" * (index % 3 + 1), mode="composition")


def fill(folder: Path, *, start: int = 0, resume: bool = False) -> None:
    """Every third index is dropped; every fifth that gives a task had one refused draft."""
    with SynthStore(folder, SETTINGS, resume=resume) as store:
        assert store.next_index == start or resume
        for index in range(store.next_index, COUNT):
            tried = DroppedDraft(draft=draft(index), stage="forward", why="at first")
            if index % 3 == 2:
                store.drop_index(index, (tried, DroppedDraft(draft=draft(index), stage="random", why="draws")))
            else:
                store.add_task(
                    index,
                    SyntheticTask(draft=draft(index), task=f"k{index}", operators=()),
                    (tried,) * (index % 5 == 0),
                )
        store.sync(complete=True)


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_records_are_written_in_index_order(tmp_path: Path) -> None:
    fill(tmp_path / "out")
    tasks, dropped = read_tasks(tmp_path / "out"), read_dropped(tmp_path / "out")
    assert [one.draft.name for one in tasks] == [f"task_{n}" for n in range(COUNT) if n % 3 != 2]
    assert [one.stage for one in dropped].count("random") == 4 and len(dropped) == 4 + 4 + 2
    manifest = read_manifest(tmp_path / "out")
    assert manifest.complete and manifest.settings == SETTINGS
    assert manifest.counts == {"tasks": 8, "drawn": COUNT, "dropped": {"forward": 6, "random": 4}}
    assert (tmp_path / "out/tasks/task_1.py").read_text() == draft(1).source


@pytest.mark.parametrize("name", [TASKS, DROPPED])
def test_a_file_truncated_at_any_byte_is_completed_to_the_same_folder(tmp_path: Path, name: str) -> None:
    fill(tmp_path / "whole")
    whole, data = content(tmp_path / "whole"), (tmp_path / "whole" / name).read_bytes()
    for cut in [*range(0, len(data), 97), len(data) - 1]:
        part = tmp_path / "part"
        shutil.copytree(tmp_path / "whole", part)
        (part / name).write_bytes(data[:cut])
        fill(part, resume=True)
        assert content(part) == whole, cut
        shutil.rmtree(part)


def test_a_missing_task_file_is_restored_and_a_broken_line_drawn_again(tmp_path: Path) -> None:
    fill(tmp_path / "out")
    whole = content(tmp_path / "out")
    (tmp_path / "out/tasks/task_0.py").unlink()
    lines = (tmp_path / "out" / TASKS).read_bytes().splitlines(keepends=True)
    lines[3] = b'{"index": 4, "made\xff": broken}\n'
    (tmp_path / "out" / TASKS).write_bytes(b"".join(lines))
    with SynthStore(tmp_path / "out", SETTINGS, resume=True) as store:
        assert [task.draft.name for task in store.tasks] == ["task_0", "task_1", "task_3"]
        assert store.next_index == 4 and (tmp_path / "out/tasks/task_0.py").exists()
        assert not (tmp_path / "out/tasks/task_6.py").exists(), "its index is drawn again"
    fill(tmp_path / "out", resume=True)
    assert content(tmp_path / "out") == whole


def test_counts_are_written_after_each_batch(tmp_path: Path) -> None:
    with SynthStore(tmp_path / "out", SETTINGS) as store:
        for index in range(BATCH):
            store.add_task(index, SyntheticTask(draft=draft(index), task="k", operators=()))
        manifest = read_manifest(tmp_path / "out")
        assert manifest.counts["tasks"] == BATCH and not manifest.complete


def test_folders_that_cannot_be_used_are_refused_with_the_reason(tmp_path: Path) -> None:
    fill(tmp_path / "out")
    with pytest.raises(BadInput, match="already holds synthesised tasks") as refused:
        SynthStore(tmp_path / "out", SETTINGS)
    assert "--resume" in refused.value.hint
    with pytest.raises(BadInput, match="was begun with seed 0, not 1"):
        SynthStore(tmp_path / "out", {**SETTINGS, "seed": 1}, resume=True)
    (tmp_path / "mine/tasks").mkdir(parents=True)
    (tmp_path / "mine/tasks/own.py").write_text("")
    with pytest.raises(BadInput, match="holds other tasks"):
        SynthStore(tmp_path / "mine", SETTINGS, resume=True)
    with pytest.raises(BadInput, match="holds no synthesised tasks"):
        read_manifest(tmp_path / "mine")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot write to"):
        SynthStore(tmp_path / "file", SETTINGS)
    (tmp_path / "out" / MANIFEST).write_text("{")
    with pytest.raises(BadInput, match="is not the manifest"):
        SynthStore(tmp_path / "out", SETTINGS, resume=True)


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    with (
        SynthStore(tmp_path / "out", SETTINGS),
        pytest.raises(BadInput, match="another process is writing"),
        SynthStore(tmp_path / "out", SETTINGS, resume=True),
    ):
        pass
    assert json.loads((tmp_path / "out" / MANIFEST).read_text())["settings"] == SETTINGS
