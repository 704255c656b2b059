"""The device functions and types that kernels call: read from engine/device/*.h, and written into programs on demand.

A header is a valid HIP source by itself. Blank lines divide it into definitions; a definition's key is the first C name
that it defines, or the macro. Lines that begin with `//@` are for this module and leave no trace in a program:

    //@ key NAME         the definition's key, where the C name is an overload of another definition
    //@ with NAME ...    definitions that a program gets beside this one, though its text does not name them
    //@ when NAME ...    a program that uses all these definitions gets this one too: an overload for certain types

The definitions that one needs are found in its text. `math.h` and `integer.h` hold functions of one arithmetic type,
which are asked for with it: ("sigmoid", "float"); every other definition is asked for with "".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from hipwright.engine.emit.c_names import C_NAMES
from hipwright.engine.emit.device_variants import VARIANTS, as_double

FOLDER = Path(__file__).parents[1] / "device"
TYPED = ("math", "integer")
"""Headers of functions of one arithmetic type."""

Use = tuple[str, str]
"""A definition's key, and the arithmetic type in which it is asked for or ""."""

_DIRECTIVE = re.compile(r"^//@ (key|with|when) (.*)\n", re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|\"(?:\\.|[^\"\\])*\"")
_STRUCT = re.compile(r"^struct (?:alignas\([^\n]*\) )?(\w+) \{", re.MULTILINE)
_TYPEDEF = re.compile(r"^typedef .*?(\w+)(?: __attribute__\(\(.*\)\))?;", re.MULTILINE)
_FUNCTION = re.compile(r"^__device__ (?:__forceinline__ )?[\w<>, *&]*?(\w+)\(", re.MULTILINE)
_MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)
_CALLED = re.compile(r"\b([A-Za-z_]\w*)(\s*[(<])?")


@dataclass(frozen=True)
class Definition:
    """One definition: its key, the C names that it defines, its text, and the uses that it brings along."""

    key: str
    type: str
    names: tuple[str, ...]
    text: str
    needs: tuple[Use, ...] = ()
    when: tuple[Use, ...] = ()


@cache
def headers() -> tuple[str, ...]:
    """The headers' names, each after those that it includes."""
    out: dict[str, None] = {}

    def add(name: str) -> None:
        for other in re.findall(r'^#include "(\w+)\.h"$', _source(name), re.MULTILINE):
            add(other)
        out.setdefault(name)

    for path in sorted(FOLDER.glob("*.h")):
        add(path.stem)
    return tuple(out)


@cache
def definitions() -> dict[Use, Definition]:
    """All definitions, each after those that it needs."""
    found = [one for name in headers() for one in _parsed(name)]
    repeated = sorted(use for use, count in Counter((d.key, d.type) for d in found).items() if count > 1)
    if repeated:
        raise ValueError(f"engine/device defines {repeated} more than once: `//@ key NAME` tells overloads apart")
    types = {name for d in found for name in d.names if name[:1].isupper()}
    uses = {(name, d.type): (d.key, d.type) for d in found for name in d.names if d.key in d.names}
    return {(d.key, d.type): _linked(d, uses, types) for d in found}


def functions(header: str) -> frozenset[str]:
    """The keys of a header's definitions."""
    return frozenset(d.key for d in _parsed(header))


@cache
def reserved() -> frozenset[str]:
    """Names that nothing else in a program may have."""
    return C_NAMES | {name for d in definitions().values() for name in (d.key, *d.names)}


def closure(uses: Iterable[Use]) -> set[Use]:
    """The uses with all that they need. Raises KeyError for an unknown one."""
    known, out, stack = definitions(), set[Use](), list(uses)
    while stack:
        use = stack.pop()
        if use not in out:
            out.add(use)
            stack += known[use].needs
        if not stack:
            stack += [other for other, d in known.items() if d.when and other not in out and out.issuperset(d.when)]
    return out


def device_code(uses: Iterable[Use], instead: Mapping[str, str] | None = None) -> str:
    """The text of all definitions that the uses need, in order.

    instead: {key: the key of a definition that takes its place}, such as one with other cache hints.
    """
    known, replaced = definitions(), instead or {}
    wanted = closure(uses)
    added = closure((other, "") for key, other in replaced.items() if (key, "") in wanted)
    wanted |= added - {(other, "") for other in replaced.values()}
    texts = [known[replaced.get(d.key, d.key), d.type].text for use, d in known.items() if use in wanted]
    return "\n".join(texts)


def included(*keys: str) -> dict[str, str]:
    """{key: text} of definitions with all that they need, for programs that write them after the shared ones."""
    return {use[0]: d.text for key in keys for use, d in definitions().items() if use in closure([(key, "")])}


@cache
def _source(header: str) -> str:
    return (FOLDER / f"{header}.h").read_text(encoding="utf-8")


def _body(header: str) -> str:
    source = re.sub(r" *\\\n *", " ", _source(header))  # lines that a backslash continues are joined
    return re.sub(r"^(?:#pragma once|#include .*)\n", "", source, flags=re.MULTILINE)


@cache
def _parsed(header: str) -> tuple[Definition, ...]:
    """A header's definitions and their variants; `needs` are only those of `with`."""
    out = []
    for paragraph in _body(header).strip("\n").split("\n\n"):
        directives, text = dict(_DIRECTIVE.findall(paragraph)), _DIRECTIVE.sub("", paragraph) + "\n"
        out += list(_definitions(header, directives, text))
    return tuple(out)


def _definitions(header: str, directives: Mapping[str, str], text: str) -> Iterator[Definition]:
    names = tuple(dict.fromkeys(_STRUCT.findall(text) + _TYPEDEF.findall(text) + _FUNCTION.findall(text)))
    names = names or tuple(dict.fromkeys(_MACRO.findall(text)))
    if not names:
        raise ValueError(f"engine/device/{header}.h: no definition in {text!r}")
    key = directives.get("key", names[0])
    needs, when = (tuple((name, "") for name in directives.get(kind, "").split()) for kind in ("with", "when"))
    if header not in TYPED:
        yield Definition(key, "", names, text, needs, when)
        for variant in VARIANTS:
            if variant.of == key:
                yield from _definitions(header, variant.directives(directives), variant.text(text))
        return
    kind = re.search(r"^__device__ (\w+)", text, re.MULTILINE)
    assert kind is not None
    yield Definition(key, kind[1], names, text)
    if kind[1] == "float" and "asm(" not in text:
        yield Definition(key, "double", names, as_double(text))


def _linked(d: Definition, uses: Mapping[Use, Use], types: set[str]) -> Definition:
    """The definition with the uses that its text names: types, and functions that are called.

    An overload is never found by its name: a kernel asks for it by key.
    """
    called = [name for name, call in _CALLED.findall(_COMMENT.sub("", d.text)) if call or name in types]
    found = [uses.get((name, d.type)) or uses.get((name, "")) for name in called if name not in d.names]
    needs = dict.fromkeys([*d.needs, *(use for use in found if use is not None)])
    return replace(d, needs=tuple(needs))


ARITHMETIC, MATH, INTEGER, INDEX = map(functions, ("arithmetic", "math", "integer", "index"))
"""The functions that expressions may call: of any arithmetic type, of floats, of integers, and of an index."""
