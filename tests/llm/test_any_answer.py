"""Reading an answer raises for no text, and takes linear time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.llm.answers.read import MAX_ANSWER, UnusableAnswer, UsableAnswer, read_answer
from hipwright.program import parse
from tests.llm.answer_samples import READ, TASK, answer

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
