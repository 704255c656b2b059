"""Kernels of one program that differ in names only: a network of a hundred layers writes and builds each of them once.

The arguments of a launch are in the order of the parameters, so the plan launches the first of them everywhere. The
parts of joined kernels are shared in the same way, by the device functions that they are printed as.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hipwright.engine.emit.function import KernelFunction

_TOKEN = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?=(?P<called>[(<])?)")
_DECLARED = re.compile(
    r"\b(?:bool|char|short|int|long|unsigned|float|double|auto|\w+<[^;=()]*>)[*& ]+(\w+)(?= = |[;\[]|\s*\{)"
)


def shared_names(functions: Iterable[KernelFunction]) -> dict[str, str]:
    """The names of kernels, and of their static-shape variants, by those of an earlier kernel that is the same."""
    known: dict[str, KernelFunction] = {}
    found: dict[str, str] = {}
    for function in functions:
        first = known.setdefault(_anonymous(function), function)
        if first is not function:
            found[function.name] = first.name
            if function.variant is not None and first.variant is not None:
                found[function.variant.name] = first.variant.name
    return found


def shared_parts(functions: Iterable[KernelFunction]) -> dict[str, str]:
    """The names of device functions of joined parts by those of an earlier kernel's part that is the same."""
    known: dict[str, str] = {}
    found: dict[str, str] = {}
    for function in functions:
        for number, part in enumerate(function.parts):
            name = function.part_name(number)
            first = known.setdefault(_anonymous_part(part), name)
            if first != name:
                found[name] = first
    return found


def launched(plan: str, names: dict[str, str]) -> str:
    """The plan with launches by other names."""
    if not names:
        return plan
    launch = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})(?=\[)")
    return launch.sub(lambda match: names[match[1]], plan)


def _anonymous(function: KernelFunction) -> str:
    """The text without its title, in which the kernel, its parameters and its locals have numbers.

    What is called keeps its name unless it is the kernel's own; members of structures keep theirs.
    """
    text = function.text().partition("\n")[2]
    own = {function.name: "@", f"{function.name}_body": "@_body"}
    if function.variant is not None:
        own[function.variant.name] = "@_variant"
    own |= {parameter.name: f"@{number}" for number, parameter in enumerate(function.parameters)}
    for number, part in enumerate(function.parts):
        own[function.part_name(number)] = f"@_part{number}"
        for place, parameter in enumerate(part.parameters):
            own.setdefault(parameter.name, f"@{number}.{place}")
    return _numbered(text, own, function.name)


def _anonymous_part(part: KernelFunction) -> str:
    """The same of a joined part's device function."""
    own = {parameter.name: f"@{number}" for number, parameter in enumerate(part.parameters)}
    return _numbered(part.as_part("part"), own, "part")


def _numbered(text: str, own: dict[str, str], name: str) -> str:
    """The text renamed by `own`, with numbers for its locals; of what is called, only what begins with `name` is."""
    for local in _DECLARED.findall(text):
        own.setdefault(local, f"@@{len(own)}")

    def renamed(match: re.Match[str]) -> str:
        word = match[0]
        return own.get(word, word) if not match["called"] or word.startswith(name) else word

    return re.sub(r"\s+", " ", _TOKEN.sub(renamed, text))
