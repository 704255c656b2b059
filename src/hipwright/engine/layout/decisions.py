"""The choices of one program, recorded while it is written: structural choices, and knobs with their defaults."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hipwright.engine.knobs import DEFAULT, KNOBS, Choice, Value


class Decisions:
    """The choices given for one program, and all those that it offers."""

    def __init__(self, choices: Mapping[str, Value]) -> None:
        self.choices = choices
        self.structure: dict[str, Choice] = {}
        self.knobs: set[str] = set()
        self._defaults: dict[str, tuple[int, tuple[int, ...]]] = {}
        self._own: dict[str, tuple[int, tuple[int, ...], str]] = {}  # the call templates' knobs

    def part(self, name: str) -> bool:
        """Whether this item, a slice or chunk of a row, may recompute the row's values in the row's kernel."""
        self.structure[f"part:{name}"] = Choice(options=("recompute", "stored"), default="recompute")
        return self.choices.get(f"part:{name}") != "stored"

    def recompute(self, name: str, usual: bool = True) -> bool:
        """Whether each kernel that reads this value may recompute it, where it is else stored. usual: the default."""
        options = ("recompute", "stored")
        return bool(self.choose(f"intermediate:{name}", options, options[0 if usual else 1]) == "recompute")

    def fuse_columns(self, name: str) -> bool:
        """Whether the row kernel that reads these columns may accumulate their sums."""
        return bool(self.choose(f"column_sums:{name}", ("fused", "separate"), "fused") == "fused")

    def whole_rows(self, name: str, usual: bool) -> bool:
        """Whether the blocks of a product reduce all columns of their rows, not tiles. usual: the default."""
        options = ("whole", "tiles")
        return bool(self.choose(f"call:{name}:rows", options, options[0 if usual else 1]) == "whole")

    def overwrite(self, name: str) -> bool:
        """Whether a kernel that reduces a tensor's rows may write the tensor's new value, too."""
        return bool(self.choose(f"overwrite:{name}", ("fused", "separate"), "fused") == "fused")

    def choose(self, key: str, options: Sequence[Any], default: Any) -> Any:
        """A structural choice made while a kernel is written."""
        if len(options) > 1:
            self.structure[key] = Choice(options=tuple(options), default=default)
        chosen = self.choices.get(key, default)
        return chosen if chosen in options else default

    def own_knob(self, name: str, default: int, options: Sequence[int], comment: str) -> str:
        """A call template's knob; kernels that want the same share it. The choice `default:NAME` is another default."""
        given = self.choices.get(f"{DEFAULT}{name}")
        wanted = (given if isinstance(given, int) and given in options else default, tuple(options), comment)
        unique, count = name, 1
        while unique in KNOBS or self._own.get(unique, wanted) != wanted:
            count += 1
            unique = f"{name}_{count}"
        self._own[unique] = wanted
        self.knobs.add(unique)
        return unique

    def shared_knob(self, name: str, default: int, most: int = 1 << 30, more: Collection[int] = ()) -> str:
        """A knob of the table, up to `most`, with `more` options; kernels that start from another value, or may take
        others, have their own."""
        options = tuple(sorted({value for value in KNOBS[name][1] if value <= max(most, default)} | set(more)))
        unique, count = name, 1
        while self._defaults.get(unique, (default, options)) != (default, options):
            count += 1
            unique = f"{name}_{count}"
        self._defaults[unique] = default, options
        return unique

    def knob(self, name: str) -> tuple[int, tuple[int, ...], str]:
        """A knob's (default, options, comment)."""
        default, options, comment = self._own.get(name) or KNOBS[re.sub(r"_\d+$", "", name)]
        return *self._defaults.get(name, (default, options)), comment

    def knob_values(self) -> dict[str, int]:
        """The knobs that were given another value than their default."""
        chosen = {}
        for name in sorted(self.knobs):
            value = self.choices.get(name)
            default, options, _ = self.knob(name)
            if value in options and value != default:
                chosen[name] = int(value)
        return chosen
