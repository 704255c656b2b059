"""The host function of a stand-alone source that computes the task: found by its binding or by its launches."""

from __future__ import annotations

import re

from hipwright.program.convert.cpp_text import CppItem, ExtensionSource, Inconvertible

PREFERRED = "forward"
_LAUNCH = re.compile(r"<<<|\bhipLaunchKernelGGL\b")


def entry(source: ExtensionSource) -> CppItem:
    """The function that a binding exports, else the one that launches kernels and that no other function calls.

    Raises Inconvertible where there is none, or several of which none is called `forward`.
    """
    hosts = source.functions("host")
    bound = _bound(source, hosts)
    chosen = bound or _roots({name: item for name, item in hosts.items() if name != "main"})
    if PREFERRED in chosen:
        return hosts[PREFERRED]
    if len(chosen) == 1:
        return hosts[chosen[0]]
    if chosen:
        listed = ", ".join(f"{name} (line {hosts[name].line})" for name in chosen)
        raise Inconvertible(f"several functions could be the task's: {listed}")
    kernels = source.functions("kernel")
    if not kernels:
        raise Inconvertible("the file has no kernel (no __global__ function with a body)")
    first = next(iter(kernels.values()))
    if "main" in hosts and _LAUNCH.search(hosts["main"].body):
        raise Inconvertible("the launch stands in main, which is not converted", hosts["main"].line)
    raise Inconvertible(f"no function launches {first.name}", first.line)


def _bound(source: ExtensionSource, hosts: dict[str, CppItem]) -> list[str]:
    """The host functions that PYBIND11_MODULE exports."""
    found: dict[str, None] = {}
    for item in source.items:
        if item.kind == "binding":
            for target in re.findall(r"\.def\(\s*\"\w+\"\s*,\s*&?\s*([\w:]+)", item.body):
                if (name := target.split("::")[-1]) in hosts:
                    found[name] = None
    return list(found)


def _roots(hosts: dict[str, CppItem]) -> list[str]:
    """The functions that launch, themselves or through others, and that none of the others calls."""
    called = {
        name: {other for other in hosts if other != name and re.search(rf"\b{other}\s*\(", item.body)}
        for name, item in hosts.items()
    }
    launching = {name for name, item in hosts.items() if _LAUNCH.search(item.body)}
    for _ in hosts:
        launching |= {name for name, others in called.items() if others & launching}
    inner = {other for name in launching for other in called[name]}
    return [name for name in hosts if name in launching and name not in inner]
