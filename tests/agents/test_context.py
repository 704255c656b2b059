"""Prompts fit their budget: the least important sections are dropped first, and noted."""

from __future__ import annotations

import pytest
from author_tools import TASK

from hipwright.agents.base import fence, render
from hipwright.agents.context import (
    IMPORTANCE,
    ContextBuilder,
    demote_headings,
    target_pages,
    task_text,
    tokens,
    without_example,
)
from hipwright.llm.knowledge_base import pages
from hipwright.records import Task, TensorSpec, Workload


def filled(budget: int) -> ContextBuilder:
    builder = ContextBuilder(budget)
    builder.add("task", "The task", "t" * 300)
    for kind in reversed(IMPORTANCE):
        builder.add(kind, kind, kind[0] * 300, "first")
    builder.add("page", "page", "q" * 300, "second")
    builder.add("evidence", "Evidence", "e" * 300)
    return builder


def test_everything_stays_where_there_is_room() -> None:
    context = filled(100_000).build()
    assert not context.dropped and len(context.sections) == len(IMPORTANCE) + 3
    assert context.text.index("## The task") < context.text.index("## Evidence")


def test_parts_go_in_the_stated_order_and_the_last_of_a_kind_first() -> None:
    everything = filled(100_000).build()
    sizes = {part.kind: tokens(part.markdown) for part in everything.sections}
    whole = sum(tokens(part.markdown) for part in everything.sections)
    assert filled(whole).build().dropped == ()
    assert filled(whole - 1).build().dropped == ("page second",)
    assert filled(whole - sizes["page"] - 1).build().dropped == ("page second", "page first")
    least = filled(0).build()
    assert least.dropped == ("page second", *(f"{kind} first" for kind in reversed(IMPORTANCE)))


def test_the_task_and_the_evidence_are_never_dropped() -> None:
    assert [part.kind for part in filled(0).build().sections] == ["task", "evidence"]


@pytest.mark.parametrize("budget", range(0, 1300, 100))
def test_what_is_kept_fits_or_cannot_be_less(budget: int) -> None:
    context = filled(budget).build()
    assert sum(tokens(part.markdown) for part in context.sections) <= max(budget, 210)


def test_an_empty_part_is_none() -> None:
    builder = ContextBuilder(100)
    builder.add("page", "Nothing", "  \n")
    assert builder.build().text == ""


def test_tokens_are_rather_too_many() -> None:
    assert tokens("") == 0 and tokens("abc") == 1 and tokens("abcd") == 2
    assert tokens("é") == 1 and tokens("日本語") == 3


@pytest.mark.parametrize("text", ["plain", "```python\nx\n```", "a ```` b", "`" * 9, ""])
def test_a_fence_is_longer_than_what_it_holds(text: str) -> None:
    lines = fence(text, "python").splitlines()
    marks = lines[0].removesuffix("python")
    assert set(marks) == {"`"} and lines[-1] == marks and marks not in "\n".join(lines[1:-1])


def test_the_task_says_shapes_and_odd_strides_and_no_path() -> None:
    specs = (
        TensorSpec(dtype="float16", shape=(4, 8), stride=(1, 4)),
        TensorSpec(dtype="int64", shape=(3,), stride=(1,)),
    )
    task = Task(name="t", source="s", workloads=(Workload(name="given", specs=specs),), provenance="/home/a/t.py")
    text = task_text(task, "class Model: ...")
    assert "float16[4, 8] with strides [1, 4], int64[3]\n" in text and "class Model: ..." in text
    assert "/home" not in task_text(TASK, TASK.source)


def test_each_target_brings_its_page_and_no_other() -> None:
    assert {page.name for page in target_pages(("cpu", "gfx942"), TASK.source)} == {"gfx942"}
    assert {page.name for page in target_pages(("gfx1100", "gfx90a"), TASK.source)} == {"gfx1100", "gfx90a"}
    assert target_pages(("cpu",), TASK.source) == []


def test_of_a_target_the_facts_are_told_and_no_example() -> None:
    arch = [page for page in pages() if page.kind == "arch"]
    assert len(arch) >= 5
    for page in arch:
        text = without_example(page)
        assert len(text) > 800 and " lanes" in text and "HIP = r" not in text and "The program" not in text


def test_headings_of_a_page_stay_inside_its_section() -> None:
    assert demote_headings("# A\n```\n# code\n```\n## B") == "### A\n```\n# code\n```\n#### B"


def test_a_prompt_that_lacks_a_value_is_an_error() -> None:
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError, match="context"):
        render("translator")
