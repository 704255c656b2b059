"""Recorded answers of models: usable ones parse, refusals say what to change, nothing is executed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import hipwright.audit
from hipwright.llm.answers.read import UnusableAnswer, UsableAnswer, read_answer
from hipwright.llm.answers.repair import CLOSING
from hipwright.program import parse
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache
from tests.llm.answer_samples import ANSWERS, EXPECTED, KINDS, READ, REFUSED, TASK, answer, read


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
    """A fixed program needs no further fix."""
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


# ---------------------------------------------------------------- ModelNew files


def test_a_model_new_file_is_converted_where_the_task_is_known() -> None:
    text = answer("load_inline")
    refused = read_answer(text)
    assert isinstance(refused, UnusableAnswer) and refused.kind == "host_code"
    found = read_answer(text, task_source=TASK)
    assert isinstance(found, UsableAnswer), found
    assert "relu_kernel" in parse(found.program.text).launched
    assert any("ModelNew" in note for note in found.mended)
