"""Properties of every command: quick help, JSON alone on stdout, harmless text, correct exit codes."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import hipwright, one_object
from typer.main import get_command

from hipwright.api.doctor import torch_build
from hipwright.api.files import prepare_folder, write_file
from hipwright.api.plain import clean, finite
from hipwright.cli.main import app
from hipwright.cli.shell.command import SECTIONS
from hipwright.errors import BadInput


def test_help_is_quick_and_imports_no_torch() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = "import sys; from hipwright.cli.main import main; main(['--help']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "False"
    for command in ("doctor", "optimize", "eval", "runs", "show", "compare", "export"):
        assert command in done.stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0, "processor seconds; torch takes 2"


def test_version(tmp_path: Path) -> None:
    done = hipwright(tmp_path / "home", "--version")
    assert done.returncode == 0 and done.stdout.startswith("hipwright ")


def test_doctor_names_everything_and_its_fix(tmp_path: Path) -> None:
    done = hipwright(tmp_path / "home", "doctor", "--json")
    result = one_object(done.stdout)
    assert done.returncode == (0 if result["ok"] else 3)
    names = {check["name"] for check in result["checks"]}
    assert {"python", "torch", "clang", "sandbox", "archive", "cache", "disk"} <= names
    for check in result["checks"]:
        assert check["ok"] or check["fix"], f"{check['name']} fails without a fix"
    assert not (tmp_path / "home").exists(), "looking must not create an archive"


def test_doctor_reads_any_torch_build(tmp_path: Path) -> None:
    file = tmp_path / "version.py"
    file.write_text("cuda: Optional[str] = None\nhip: Optional[str] = '6.4.43482'\n")
    assert torch_build(file) == "ROCm 6.4.43482"
    file.write_text("cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n")
    assert torch_build(file) == "CUDA 12.8"
    assert torch_build(tmp_path / "missing.py") == "CPU only"


def test_runs_without_an_archive_is_an_empty_list(tmp_path: Path) -> None:
    done = hipwright(tmp_path / "home", "runs", "--json")
    assert done.returncode == 0 and one_object(done.stdout)["runs"] == []
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(("text", "shown"), [("a\x1b[31mb", "a\\x1b[31mb"), ("a\u202eb", "a\\u202eb"), ("a\nb", "a b")])
def test_clean(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_finite_is_json() -> None:
    value = finite({"a": [float("nan"), 1.5, (float("inf"),)], 3: True})
    assert json.dumps(value, allow_nan=False) == '{"a": [null, 1.5, [null]], "3": true}'


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    write_file(path, "one")
    write_file(path, "two \ud800")
    assert path.read_text() == "two \\ud800"
    assert [p.name for p in tmp_path.iterdir()] == ["program.py"]


def test_an_output_folder_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot write"):
        prepare_folder(tmp_path / "file" / "out")


def test_the_tasks_own_shape_is_named_where_nothing_ran_it(tmp_path: Path) -> None:
    """8 million elements are too many for the cpu target: the grid of another size passes there."""
    task, program = tmp_path / "task.py", tmp_path / "program.py"
    task.write_text(
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
        "        return torch.relu(x)\n\n\ndef get_inputs():\n    return [torch.randn(8192, 1000)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    program.write_text(
        "HIP = r'''\n#include <hip/hip_runtime.h>\n"
        'extern "C" __global__ void relu(const float* x, float* out, int n) {\n'
        "    const int i = blockIdx.x * 256 + threadIdx.x;\n"
        "    if (i < n) out[i] = x[i] > 0.0f || x[i] != x[i] ? x[i] : 0.0f;\n"
        "}\n'''\n\n\ndef forward(self, x):\n    x = x.contiguous()\n    out = torch.empty_like(x)\n"
        "    relu[cdiv(4000000, 256), 256](x, out, x.numel())\n    return out\n"
    )
    found = hipwright(tmp_path / "home", "eval", task, program, "--target", "cpu")
    assert found.returncode == 0, found.stderr
    assert "given, the task's own shape, was not verified: 8192000 elements are too many" in found.stdout


def test_a_group_without_a_command_shows_its_help(tmp_path: Path) -> None:
    for words in ((), ("dataset",), ("train",)):
        done = hipwright(tmp_path / "home", *words)
        assert done.returncode == 0 and done.stdout.startswith("Usage: hipwright") and not done.stderr


def test_the_help_names_every_command_in_a_section_and_cuts_nothing() -> None:
    commands = {name for name, one in get_command(app).commands.items() if not one.hidden}
    assert commands == {name for names in SECTIONS.values() for name in names}
    done = subprocess.run([sys.executable, "-m", "hipwright", "--help"], capture_output=True, text=True, timeout=60)
    assert "..." not in done.stdout.partition("Programs:")[2] and all(f"{title}:" in done.stdout for title in SECTIONS)


@pytest.mark.parametrize(("words", "meant"), [(("optimise", "x"), "optimize"), (("dataset", "biuld"), "build")])
def test_a_misspelt_command_is_answered_with_the_one_that_was_meant(
    words: tuple[str, ...], meant: str, tmp_path: Path
) -> None:
    done = hipwright(tmp_path / "home", *words)
    assert done.returncode == 2 and f"Did you mean '{meant}'?" in done.stderr


def test_a_shell_completes_commands(tmp_path: Path) -> None:
    env = {"_HIPWRIGHT_COMPLETE": "complete_bash", "COMP_WORDS": "hipwright op", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "hipwright"], env={**os.environ, **env}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["optimize"]
