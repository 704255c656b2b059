"""`optimize --start` and `eval` of CUDA and HIP files from the command line; errors of one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli_tools import hipwright, one_object

from hipwright.archive import Archive, export
from tests import warm
from tests.llm.server import LocalProvider
from tests.starts import ROOT, TASKS, task_of

SOFTMAX = ROOT / "cuda" / "softmax.cu"


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, object]]:
    """A run that begins with a CUDA file: its archive, its output folder, its result object."""
    folder = tmp_path_factory.mktemp("run")
    options = ("--start", SOFTMAX, "--target", "gfx942", "--target", "cpu", "--budget", 1, "--out", folder / "out")
    done = hipwright(folder / "home", "optimize", TASKS["softmax"], *options, "--json")
    assert done.returncode == 0, done.stderr
    return folder / "home", folder / "out", one_object(done.stdout)


@pytest.mark.slow
def test_a_run_compares_its_winner_with_the_start(begun: tuple[Path, Path, dict[str, object]]) -> None:
    home, out, result = begun
    start = result["start"]
    assert isinstance(start, dict) and start["status"] == "pass" and start["form"] == "cuda"
    assert start["score_kind"] == "estimate" and float(str(start["speedup"])) >= 1.0
    assert any("a mask of all 32 lanes" in note for note in start["notes"])
    assert json.loads((out / "result.json").read_text())["start"] == start
    assert "The start softmax.cu (CUDA source) is verified" in (out / "report.html").read_text()
    assert one_object(hipwright(home, "show", "latest", "--json").stdout)["start"] == start
    shown = hipwright(home, "show", "latest").stdout
    assert "the start softmax.cu (CUDA source) is verified" in shown and "0  start" in shown


@pytest.mark.slow
def test_the_start_of_a_run_is_in_the_archive_and_cannot_be_changed(
    begun: tuple[Path, Path, dict[str, object]], tmp_path: Path
) -> None:
    home, _, result = begun
    shutil.copytree(home, tmp_path / "home")
    again = hipwright(tmp_path / "home", "resume", "latest", "--json")
    assert one_object(again.stdout)["start"] == result["start"]
    other = hipwright(tmp_path / "home", "optimize", TASKS["softmax"], "--resume", "latest", "--start", SOFTMAX)
    assert other.returncode == 2 and "keeps the start that it was begun with" in other.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cuda/add_relu.cu", "hip/layernorm.hip"])
def test_a_source_is_judged_and_exported_like_a_program(tmp_path: Path, name: str) -> None:
    path = ROOT / name
    done = hipwright(tmp_path / "home", "eval", task_of(path), path, "--target", "cpu", "--json")
    found = one_object(done.stdout)
    assert done.returncode == 0 and found["status"] == "pass", done.stdout
    assert found["form"] == path.suffix[1:].replace("cu", "cuda") and found["warnings"] == []
    out = tmp_path / "out"
    done = hipwright(tmp_path / "home", "export", task_of(path), path, "--format", "modelnew", "--out", out)
    assert done.returncode == 0 and "class ModelNew" in next(out.glob("*.py")).read_text(), done.stderr


@pytest.mark.parametrize("command", ["eval", "optimize"])
def test_a_source_that_is_not_understood_is_one_line_with_its_own_line(tmp_path: Path, command: str) -> None:
    path = ROOT / "refused" / "dot_cub.cu"
    given = (path,) if command == "eval" else ("--start", path)
    done = hipwright(tmp_path / "home", command, TASKS["dot"], *given, "--target", "cpu", "--json")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert errors == ["error: program: dot_cub.cu: line 8: cannot be converted: the device code uses CUB"]
    assert one_object(done.stdout)["evidence"] == {"line": 8}


def test_a_triton_kernel_alone_ends_with_what_could_use_it(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text("import triton\n\n\n@triton.jit\ndef k(x):\n    pass\n")
    done = hipwright(tmp_path / "home", "optimize", TASKS["dot"], "--start", path, "--target", "cpu")
    assert done.returncode == 2 and "with --llm it is text for the model's prompt" in done.stderr


@pytest.mark.slow
def test_a_run_with_a_start_is_repeated_from_its_export_in_another_archive(
    begun: tuple[Path, Path, dict[str, object]], tmp_path: Path
) -> None:
    home, _, result = begun
    with Archive(home, create=False) as archive:
        (tmp_path / "run.jsonl").write_text(export(archive, "latest"))
        first = export(archive, "latest", canonical=True)
    elsewhere = tmp_path / "elsewhere"
    again = hipwright(elsewhere, "optimize", TASKS["softmax"], "--replay", tmp_path / "run.jsonl", "--json")
    assert again.returncode == 0, again.stderr
    assert one_object(again.stdout)["start"] == result["start"]
    with Archive(elsewhere, create=False) as archive:
        assert export(archive, "latest", canonical=True) == first


@pytest.mark.slow
def test_a_source_that_is_no_program_is_text_for_the_models(tmp_path: Path) -> None:
    path, home = ROOT / "refused" / "row_sum_groups.cu", tmp_path / "home"
    with LocalProvider(lambda messages, call: "no program") as provider:
        options = (
            "--start",
            path,
            "--llm",
            provider.spec("openai"),
            "--llm-share",
            1,
            "--target",
            "cpu",
            "--budget",
            2,
        )
        env = {"HIPWRIGHT_HOME": str(home), **LocalProvider.environment()}
        done = warm.hipwright(tmp_path, "optimize", TASKS["row_sum"], *options, "--json", env=env)
        seen = "\n".join(message["content"] for one in provider.requests for message in one.messages)
    assert done.returncode == 0, done.stderr
    assert path.read_text().strip() in seen and "a text that is no program" in seen
    start = one_object(done.stdout)["start"]
    assert start["status"] == "not judged" and "cooperative groups" in start["message"] and start["speedup"] is None
