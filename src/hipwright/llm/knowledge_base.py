"""The knowledge base: pages about architectures, techniques and the form of programs.

The pages are Markdown files in `knowledge/` with YAML front matter. Every program on them compiles for every target of
its page and is verified against the task before it (tests/llm/test_knowledge.py).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Literal

import yaml

from hipwright.archive.code_features import feature_words, python_tree, task_features, tokens
from hipwright.archive.text_similarity import Text, rank
from hipwright.errors import InfrastructureError
from hipwright.records import Record
from hipwright.targets import OFFLINE, TARGETS

Kind = Literal["arch", "technique", "api"]
KINDS: tuple[Kind, ...] = ("arch", "technique", "api")

_BLOCK = re.compile(r"^```python (task|program)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Page(Record, frozen=True, kw_only=True):
    """One page. targets: architectures that it applies to; text: Markdown without the front matter.

    tasks, programs: its fenced examples; the nth program solves the nth task.
    """

    name: str
    kind: Kind
    title: str
    targets: tuple[str, ...]
    tags: tuple[str, ...]
    text: str
    tasks: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


def pages() -> list[Page]:
    """All pages, sorted by name. InfrastructureError for a damaged installation."""
    return list(_pages())


@functools.cache
def _pages() -> tuple[Page, ...]:
    folder = files("hipwright.llm").joinpath("knowledge")
    found = sorted((item for item in folder.iterdir() if item.name.endswith(".md")), key=lambda item: item.name)
    return tuple(read_page(item.name, item.read_text(encoding="utf-8")) for item in found)


def read_page(file: str, text: str) -> Page:
    """Reads a page from the text of its file. InfrastructureError if it is malformed."""
    parts = re.split(r"^---\n", text, maxsplit=2, flags=re.MULTILINE)
    try:
        if len(parts) != 3 or parts[0]:
            raise ValueError("no front matter between two lines of ---")
        plain: dict[str, Any] = yaml.safe_load(parts[1])
        blocks = _BLOCK.findall(parts[2])
        examples = {f"{kind}s": [body for what, body in blocks if what == kind] for kind in ("task", "program")}
        if [what for what, _ in blocks] != ["task", "program"] * (len(blocks) // 2):
            raise ValueError("each task needs one program, right after it")
        return Page.from_dict({**plain, "text": parts[2].strip(), **examples})
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise InfrastructureError(
            f"the knowledge page {file} cannot be read: {error}", hint="reinstall hipwright"
        ) from error


def retrieve(query: str, *, targets: Sequence[str], k: int, kinds: Sequence[Kind] = KINDS) -> list[Page]:
    """Returns up to k pages for a query (words, or a task's source), the best first, ties by name.

    targets: of the run. A page about an architecture is returned for that target only (a GPU target stands for the
    architectures that it alone has), whatever the query; other pages for any target they apply to (a GPU of AMD: any
    AMD one; the host alone: all), if they match at all.
    """
    chosen = [page for page in _pages() if page.kind in kinds and _applies(page, targets)]
    features = task_features(query)
    # in prose an operator's name is a plain word ("prefix sum"), in code it is what the task computes
    code = python_tree(query) is not None
    words = [*tokens(query), *(feature_words(features) if code else ())]
    similarity = rank(Text(words, features), [_text(page) for page in chosen], by_features=0.5 if code else 0.2)
    scored = [pair for pair in zip(similarity, chosen, strict=True) if pair[0] > 0 or pair[1].kind == "arch"]
    scored.sort(key=lambda pair: (-pair[0], pair[1].name))
    return [page for _, page in scored[:k]]


def _applies(page: Page, targets: Sequence[str]) -> bool:
    names = {name for target in targets for name in _architectures(target)}
    if page.kind == "arch":
        return bool(names & set(page.targets))
    if any(TARGETS.is_gpu(name) and TARGETS.is_amd(name) for name in targets) and set(page.targets) & set(OFFLINE):
        return True
    return not names or bool(names & set(page.targets))


def _architectures(name: str) -> tuple[str, ...]:
    """The architectures that only the target of that name has, else the name itself; () for the host."""
    target = TARGETS.get(name)
    if target is None:
        return (name,)
    return () if target.is_host else tuple(one.name for one in target.architectures) or (name,)


@functools.cache
def _text(page: Page) -> Text:
    """The words of a page: title, name and tags four times, task features twice, prose once, without code."""
    features = task_features("\n".join(page.tasks))
    head = tokens(" ".join((page.title, page.name, *page.tags)))
    prose = re.sub(r"^```.*?^```$", "", page.text, flags=re.MULTILINE | re.DOTALL)
    return Text([*head * 4, *feature_words(features) * 2, *tokens(prose)], features)
