"""Answers as models give them: what is salvaged parses, a refusal says what to change, and nothing is executed."""

from __future__ import annotations

import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hipwright.audit
from hipwright.llm.answers.read import MAX_ANSWER, UnusableAnswer, UsableAnswer, read_answer
from hipwright.llm.answers.repair import CLOSING
from hipwright.program import parse
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache

ANSWERS = Path(__file__).parent / "answers"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((ANSWERS / "expected.toml").read_text())
READ = [name for name, e in EXPECTED.items() if e["kind"] == "read"]
REFUSED = [name for name, e in EXPECTED.items() if e["kind"] != "read"]
KINDS = {
    "no_code",
    "truncated",
    "two_programs",
    "no_kernel",
    "hip_only",
    "host_code",
    "unknown_api",
    "not_python",
    "patch",
    "unsafe_python",
    "forbidden",
    "not_a_program",
    "own_parameters",
    "elided",
    "filtered",
    "too_long",
}


TASK = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.rand(8, 8)]

def get_init_inputs():
    return []
"""


def answer(name: str) -> str:
    return (ANSWERS / f"{name}.txt").read_bytes().decode()


def read(name: str) -> UsableAnswer | UnusableAnswer:
    return read_answer(answer(name), EXPECTED[name].get("finish", "stop"))


def test_every_file_has_an_expectation() -> None:
    assert {p.stem for p in ANSWERS.glob("*.txt")} == set(EXPECTED)
    assert len(READ) >= 30 and len(REFUSED) >= 30
    assert {EXPECTED[n]["kind"] for n in REFUSED} == KINDS - {"too_long"}


@pytest.mark.parametrize("name", READ)
def test_salvaged(name: str) -> None:
    found, expected = read(name), EXPECTED[name]
    assert isinstance(found, UsableAnswer), found
    parsed = parse(found.program.text)
    assert parsed.launched
    assert expected.get("holds", "") in found.program.text
    assert bool(found.mended) == bool(expected["mended"]), found.mended
    for note in expected["mended"]:
        assert any(note in said for said in found.mended), found.mended
    assert UsableAnswer.from_json(found.to_json()) == found


@pytest.mark.parametrize("name", READ)
def test_a_program_reads_as_itself(name: str) -> None:
    """What was salvaged needs no second salvage."""
    found = read(name)
    assert isinstance(found, UsableAnswer)
    again = read_answer(f"```python\n{found.program.text}```\n")
    assert isinstance(again, UsableAnswer) and not again.mended
    assert again.program == found.program


@pytest.mark.parametrize("name", REFUSED)
def test_asked_again(name: str) -> None:
    found = read(name)
    assert isinstance(found, UnusableAnswer), found
    assert found.kind == EXPECTED[name]["kind"]
    assert EXPECTED[name]["says"] in found.repair
    assert found.repair.endswith(CLOSING) and len(found.repair) < 3000
    assert found.message and "\n" not in found.message
    assert UnusableAnswer.from_json(found.to_json()) == found


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> BuildCache:
    return BuildCache(tmp_path_factory.mktemp("cache"))


COMPILED = [name for name in READ if EXPECTED[name].get("compiles")]


def test_several_are_compiled() -> None:
    assert len(COMPILED) >= 6


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_salvaged_programs_compile_for_gfx942(name: str, cache: BuildCache) -> None:
    found = read(name)
    assert isinstance(found, UsableAnswer)
    parsed = parse(found.program.text)
    built = amdgpu.build(parsed.hip, "gfx942", parsed.defines(), cache=cache)
    assert built.ok, built.log


# ---------------------------------------------------------------- honest programs are taken as they are

HONEST = sorted((Path(hipwright.audit.__file__).parent / "corpus" / "program" / "honest").glob("*.py"))


@pytest.mark.parametrize("path", HONEST, ids=[p.stem for p in HONEST])
def test_an_honest_program_is_left_alone(path: Path) -> None:
    text = path.read_text()
    found = read_answer(f"```python\n{text}```\n")
    if not parse(text).launched:
        assert isinstance(found, UnusableAnswer) and found.kind == "no_kernel"  # the library alone is no answer
    else:
        assert isinstance(found, UsableAnswer) and not found.mended
        assert found.program.text == text.strip("\n") + "\n"


def test_names_of_locals_are_not_taken_for_modules() -> None:
    text = (
        answer("no_fence")
        .replace("(self, x)", "(self, signal)")
        .replace("x = x.contiguous()", "x = signal.contiguous()")
    )
    assert isinstance(read_answer(text), UsableAnswer)


def test_a_comment_about_the_rest_is_no_omission() -> None:
    text = answer("no_fence").replace("// grid-stride loop", "// the rest of the row, same as above but")
    assert isinstance(read_answer(text), UsableAnswer)


# ---------------------------------------------------------------- nothing is executed

WATCHED = ("open", "os.", "subprocess.", "socket.", "shutil.", "exec", "import", "ctypes.", "pty.", "urllib.")
seen: list[str] = []
watching = False


def _watch(event: str, args: tuple[Any, ...]) -> None:
    # CPython looks for the text of a wrong line in a file called <unknown>
    if watching and event.startswith(WATCHED) and args[:1] != ("<unknown>",):
        seen.append(f"{event} {args!r:.80}")


sys.addaudithook(_watch)  # stays for the life of the process; it looks only while `watching`


def test_nothing_of_an_answer_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Module-level code, decorators, default arguments and class bodies of hostile answers leave no trace."""
    global watching
    monkeypatch.chdir(tmp_path)
    texts = [(answer(name), EXPECTED[name].get("finish", "stop")) for name in EXPECTED]
    texts.append(("```python\n" + "open('here', 'w')\n" * 3 + answer("no_fence") + "```", "stop"))
    for text, finish in texts:
        read_answer(text, finish, task_source="class Model: pass")  # what is imported late is imported now
    seen.clear()
    watching = True
    try:
        for text, finish in texts:
            read_answer(text, finish, task_source="class Model: pass")
    finally:
        watching = False
    assert seen == []
    assert list(tmp_path.iterdir()) == []


def test_the_watch_sees_what_is_executed(tmp_path: Path) -> None:
    global watching
    seen.clear()
    watching = True
    try:
        exec("open(path, 'w').close()", {"path": str(tmp_path / "x")})
    finally:
        watching = False
    assert any(event.startswith("exec") for event in seen) and any(event.startswith("open") for event in seen)


# ---------------------------------------------------------------- any text, in linear time

GOOD = [answer(name) for name in READ]
PIECES = st.sampled_from(
    [
        "```",
        "~~~",
        "```python\n",
        "'''",
        '"""',
        "\n",
        "\r\n",
        "<think>",
        "</think>",
        "{",
        "}",
        "(",
        ")",
        "\\",
        "“",
        "’",
        "\u200b",
        "\u00a0",
        "\ud800",
        "\x00",
        "__global__",
        "HIP = r'''",
        "def forward(self, x):",
        "#include <",
        "\t",
        "<<<",
        "import os\n",
        "/*",
        "//",
        "#",
        "&lt;",
        "class ModelNew(nn.Module):\n",
        '{"code": "',
        "...",
        'extern "C" ',
        ";",
        "\u2028",
        "\x0c",
    ]
)


def survives(text: str, finish: str = "stop") -> None:
    found = read_answer(text, finish, task_source="class Model: pass")
    assert isinstance(found, (UsableAnswer, UnusableAnswer))
    assert type(found).from_json(found.to_json()) == found
    if isinstance(found, UsableAnswer):
        parse(found.program.text)


@settings(max_examples=150, deadline=None)
@given(st.text(st.characters(codec=None), max_size=300), st.sampled_from(["stop", "length", "filtered", "other", "?"]))
def test_any_text(text: str, finish: str) -> None:
    survives(text, finish)


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=40))
def test_any_pieces(pieces: list[str]) -> None:
    survives("".join(pieces))


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_any_mutation_of_a_good_answer(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(GOOD))
    for _ in range(data.draw(st.integers(1, 4))):
        at, cut = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 60))
        text = text[:at] + data.draw(st.one_of(PIECES, st.text(max_size=5))) + text[at + cut :]
    survives(text)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_mutation_of_a_file_that_is_converted(data: st.DataObject) -> None:
    text = answer("load_inline")
    for _ in range(data.draw(st.integers(1, 3))):
        at, cut = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 20))
        text = text[:at] + data.draw(st.one_of(PIECES, st.text("{}()<>;,.&*#_ax0", max_size=3))) + text[at + cut :]
    found = read_answer(text, task_source=TASK)
    assert isinstance(found, (UsableAnswer, UnusableAnswer))


HUGE = {
    "backticks": "`" * 1_000_000,
    "fences": "```\n" * 250_000,
    "fences with languages": "```python\n" * 50_000,
    "tildes in a line": "~" * 499_999 + " x",
    "triple quotes": "'''" * 160_000,
    "a literal that never ends": "```python\nHIP = r'''" + "__global__ x(" * 30_000,
    "smart quotes": "```python\n" + "“" * 1_000_000,
    "escaped quotes": "```python\ndef forward(self, x):\n" + "'\\" * 100_000 + "“",
    "think tags": "<think>" * 70_000,
    "closing tags": "</think>" * 60_000,
    "open tags of XML": "<answer " * 60_000,
    "special tokens": "<|" * 500_000,
    "json": '{"a":' * 100_000,
    "json strings": '["' + "def forward" * 40_000 + '"]',
    "blank lines": "\n" * 1_000_000,
    "spaces": "```python\n" + " " * 1_000_000 + "def forward",
    "one long line": "```cpp\n__global__ void k(" + "int a," * 80_000,
    "kernels": "```cpp\n"
    + "__global__ void k() {}\n" * 2_500
    + "```\n```python\ndef forward(self, x):\n    k[1, 1]()\n    return x\n```",
    "comments": "```python\n" + "# ... " * 9_000,
    "includes": "```cpp\n__global__\n" + "#include <a>\n" * 4_500,
    "masks": "```python\nHIP = r'''\n" + "__shfl_sync(" * 4_500 + "\n'''\ndef forward(self, x):\n    return x\n```",
    "blanks in HIP": "```python\nHIP = r'''\n__global__"
    + " " * 60_000
    + "\n'''\ndef forward(self, x):\n    return x\n```",
    "minus signs": "```python\ndef forward(self, x):\n    return " + "−" * 60_000,
    "brackets": "```python\ndef forward(self, x):\n    return " + "(" * 60_000,
    "imports": "```python\n"
    + "import torch, math\n" * 3_000
    + "HIP = r'''__global__'''\ndef forward(self, x):\n    return x\n```",
}


@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE.keys())
def test_huge_answers_take_no_time(text: str) -> None:
    start = time.thread_time()
    survives(text)
    assert time.thread_time() - start < 10.0  # seconds; an ordinary answer takes about 10 ms


def test_an_answer_beyond_all_bounds_is_not_read() -> None:
    found = read_answer("x" * (MAX_ANSWER + 1))
    assert isinstance(found, UnusableAnswer) and found.kind == "too_long"


def test_a_program_that_is_too_long_is_asked_for_again() -> None:
    found = read_answer("```python\n" + answer("no_fence") + "# more\n" * 10_000 + "```")
    assert isinstance(found, UnusableAnswer) and found.kind == "too_long" and "shorter" in found.repair


# ---------------------------------------------------------------- ModelNew files


def test_a_model_new_file_is_converted_where_the_task_is_known() -> None:
    text = answer("load_inline")
    refused = read_answer(text)
    assert isinstance(refused, UnusableAnswer) and refused.kind == "host_code"
    found = read_answer(text, task_source=TASK)
    assert isinstance(found, UsableAnswer), found
    assert "relu_kernel" in parse(found.program.text).launched
    assert any("ModelNew" in note for note in found.mended)
