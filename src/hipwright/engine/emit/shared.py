"""Kernels of one program that differ in names only: a network of a hundred layers writes and builds each of them once.

The arguments of a launch are in the order of the parameters, so the plan launches the first of them everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hipwright.engine.emit.function import KernelFunction

_TOKEN = re.compile(r"[A-Za-z_]\w*(?=(?P<called>[(<])?)")


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


def launched(plan: str, names: dict[str, str]) -> str:
    """The plan with launches by other names."""
    if not names:
        return plan
    launch = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})(?=\[)")
    return launch.sub(lambda match: names[match[1]], plan)


def _anonymous(function: KernelFunction) -> str:
    """The text without its title, in which the kernel and its parameters, and locals named after them, have numbers.

    What is called keeps its name unless it is the kernel's own.
    """
    own = {function.name: "@", f"{function.name}_body": "@_body"}
    if function.variant is not None:
        own[function.variant.name] = "@_variant"
    parameters = {parameter.name: f"@{number}" for number, parameter in enumerate(function.parameters)}
    longest = sorted(parameters, key=len, reverse=True)

    def renamed(match: re.Match[str]) -> str:
        word = match[0]
        if word in own or word in parameters:
            return own.get(word) or parameters[word]
        if match["called"]:
            return word
        first = next((name for name in longest if word.startswith(f"{name}_")), None)
        return word if first is None else parameters[first] + word[len(first) :]

    return re.sub(r"\s+", " ", _TOKEN.sub(renamed, function.text().partition("\n")[2]))
