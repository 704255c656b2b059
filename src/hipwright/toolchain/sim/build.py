"""Builds a source for a simulated target: clang's assembly for the architecture, as the executor's micro-ops."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hipwright.records import Build, content_key
from hipwright.targets import TARGETS
from hipwright.toolchain.amd import offline
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.sim import program, runtime


def build(source: str, target: str, defines: Mapping[str, int], *, cache: BuildCache, unsafe: bool = False) -> Build:
    """Compile HIP source for the architecture of a simulated target. `blob` is the executor's program.

    The machine code is that of the offline target: `isa_blob` is its assembly. Also builds the executor where the cache
    lacks it. Raises what `offline.build` raises.
    """
    made = offline.build(source, TARGETS[target].architecture.name, defines, cache=cache, unsafe=unsafe)
    if not made.ok:
        return msgspec.structs.replace(made, target=target)
    runtime.library(cache, unsafe=unsafe)
    return from_assembly(cache.get(made.isa_blob).decode(), target, made, cache)


def from_assembly(text: str, target: str, made: Build, cache: BuildCache) -> Build:
    """The simulated target's build of an assembly text. made: the offline target's, for all else that it tells."""
    key = content_key("sim", text, target, _version())
    if known := cache.load(key):
        return known
    blob = cache.put(program.assemble(text))
    built = msgspec.structs.replace(made, target=target, blob=blob, isa_blob=cache.put(text.encode()))
    cache.store(key, built)
    return built


@functools.cache
def _version() -> str:
    """The version of this package's text."""
    return content_key(*(path.read_text() for path in sorted(Path(__file__).parent.glob("*.py"))))
