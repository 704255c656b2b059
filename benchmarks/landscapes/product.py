"""Which part of a space is measured: the product of the options of the keys that matter most, closed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

ALIASES = 8
"""The most combinations for each distinct program: options that act beside some others alone repeat programs."""
Product = dict[str, list[Any]]
"""{key: its kept options, the default first, then the fastest first}."""


@dataclass(frozen=True)
class TimedKey:
    """One key with its kept options and microseconds of each; the default is first, then the fastest is first."""

    name: str
    options: Sequence[Any]
    us: Sequence[float]

    @property
    def spread(self) -> float:
        """The slowest option's time over the fastest's."""
        return max(self.us) / min(self.us)


def timed_key(name: str, default: Any, us: Mapping[Any, float], most: int) -> TimedKey | None:
    """The key with its default and its fastest other options, `most` in all; None where no other one has a time."""
    others = sorted((option for option in us if option != default), key=lambda option: us[option])[: most - 1]
    if default not in us or not others:
        return None
    kept = [default, *others]
    return TimedKey(name, kept, [us[option] for option in kept])


def chosen_product(keys: Iterable[TimedKey], programs: int, count: Callable[[Product], int]) -> Product:
    """The options whose product is measured: keys in order of their spread, each with as many options as there is room.

    programs: the most distinct programs. count: how many distinct programs a product has.
    """
    chosen: Product = {}
    for key in sorted(keys, key=lambda key: -key.spread):
        before = count(chosen) if chosen else 1
        for most in range(len(key.options), 1, -1):
            tried = {**chosen, key.name: list(key.options[:most])}
            if prod(map(len, tried.values())) > ALIASES * programs or (found := count(tried)) > programs:
                continue
            chosen = tried if found > before else chosen
            break
    return chosen


def combinations(product: Product) -> list[dict[str, Any]]:
    """All settings of a product, the first key's options slowest."""
    return [dict(zip(product, values, strict=True)) for values in itertools.product(*product.values())]


def closed_part(product: Product, done: Callable[[Mapping[str, Any]], bool]) -> Product:
    """The product less the options that leave combinations undone: the one with the most undone goes first, the last
    of those that have as many. The combination of first options (the defaults) must be done."""
    left = {key: list(options) for key, options in product.items()}
    while undone := [one for one in combinations(left) if not done(one)]:
        missing: dict[tuple[str, Any], float] = {}
        for key, options in left.items():
            for option in options[1:]:
                number = sum(one[key] == option for one in undone)
                missing[key, option] = number * len(options)  # each option has 1/len(options) of all combinations
        key, option = max(reversed(missing), key=lambda place: missing[place])
        left[key].remove(option)
    return {key: options for key, options in left.items() if len(options) > 1}
