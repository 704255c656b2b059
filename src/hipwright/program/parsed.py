"""Parsed: a parsed and checked program."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from hipwright.errors import ProgramError
from hipwright.program.knobs import Knob, evaluate
from hipwright.program.language import did_you_mean
from hipwright.program.signature import KernelSignatures, Signature


@dataclass(frozen=True)
class Parsed:
    """A parsed and checked program.

    hip_line: the program line on which the HIP literal starts, so line i of `hip` (from 1) is program line
    hip_line + i - 1. functions: the checked syntax trees by name. prepared: the names that prepare returns.
    self_paths: the paths of self that are read. launched: the kernels that are launched.
    """

    text: str
    hip: str
    hip_line: int
    knobs: dict[str, Knob]
    constants: dict[str, ast.expr]
    kernels: KernelSignatures
    functions: dict[str, ast.FunctionDef]
    prepared: tuple[str, ...] = ()
    self_paths: tuple[str, ...] = ()
    launched: tuple[str, ...] = ()

    @property
    def signatures(self) -> dict[str, Signature]:
        """Entry kernels by name."""
        return self.kernels.signatures

    @property
    def has_prepare(self) -> bool:
        """True when the program packs weights ahead."""
        return "prepare" in self.functions

    @property
    def has_backward(self) -> bool:
        """True when the program computes gradients."""
        return "backward" in self.functions

    def choose(self, knobs: Mapping[str, int] | None = None) -> dict[str, int | bool]:
        """Every knob's value: the chosen ones, else the defaults. ProgramError for an unknown knob or choice."""
        for name, value in (knobs or {}).items():
            if name not in self.knobs:
                raise ProgramError(f"this program has no knob {name}{did_you_mean(name, self.knobs)}")
            if value not in self.knobs[name].choices:
                listed = list(self.knobs[name].choices)
                raise ProgramError(f"knob {name} cannot be {value}; its choices are {listed}", self.knobs[name].line)
        chosen = knobs or {}
        return {name: knob.value(chosen.get(name, knob.default)) for name, knob in self.knobs.items()}

    def defines(self, knobs: Mapping[str, int] | None = None) -> dict[str, int]:
        """The knobs as the compiler gets them (-DNAME=value), booleans as 0 and 1."""
        return {name: int(value) for name, value in self.choose(knobs).items()}

    def values(self, knobs: Mapping[str, int] | None = None) -> dict[str, int | bool]:
        """Knobs and constants as the plan sees them."""
        values = self.choose(knobs)
        for name, expression in self.constants.items():
            values[name] = evaluate(expression, values)
        return values
