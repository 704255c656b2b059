"""docs/program.md: every example parses, and every quoted error occurs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hipwright.errors import ProgramError
from hipwright.program import language, parse

from .support import check_ops, plan_of

DOC = (Path(__file__).parents[2] / "docs" / "program.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", DOC, flags=re.MULTILINE | re.DOTALL)
ERRORS = re.findall(r"^\| `(return .*?)` \| `(.*?)` \|$", DOC, flags=re.MULTILINE)


@pytest.mark.parametrize("text", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_parse(text: str) -> None:
    check_ops(parse(text))


@pytest.mark.parametrize(("line", "message"), ERRORS)
def test_quoted_errors(line: str, message: str) -> None:
    with pytest.raises(ProgramError, match=re.escape(message)):
        plan_of(f"def forward(self, x):\n    {line}\n", {"attrs": {"weight": 1}})


def test_the_page_names_the_whole_vocabulary() -> None:
    assert len(EXAMPLES) >= 4 and len(ERRORS) >= 8
    words = (*language.HOST_FUNCTIONS, *language.VALUE_ATTRIBUTES, *language.IMPORTS)
    assert [word for word in words if word not in DOC] == []
