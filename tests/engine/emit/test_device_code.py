"""Device code: each header compiles by itself, and a program gets the definitions that it uses and no others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from hipwright.engine import version
from hipwright.engine.emit import device_code, device_variants
from hipwright.engine.emit.device_code import FOLDER, definitions, headers, included, reserved
from hipwright.engine.emit.device_variants import DefinitionVariant, as_double
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cpu import build as cpu
from hipwright.toolchain.nvidia import nvrtc
from tests import warm
from tests.engine.harness import CACHE
from tests.engine.template_builds import TARGETS

ENTRY = 'extern "C" __global__ void entry(float* out) {\n    out[0] = 1.0f;\n}\n'
HEAD = "#include <hip/hip_runtime.h>\n#include <hip/hip_fp16.h>\n#include <hip/hip_bf16.h>\n\n"


def flattened(header: str, seen: set[str]) -> str:
    """A header with those that it includes in their place, each once."""
    if header in seen:
        return ""
    seen.add(header)
    text = (FOLDER / f"{header}.h").read_text()
    text = re.sub(r"^(?:#pragma once|#include <.*>)\n", "", text, flags=re.MULTILINE)
    return re.sub(r'^#include "(\w+)\.h"\n', lambda found: flattened(found[1], seen), text, flags=re.MULTILINE)


def sources() -> dict[str, str]:
    """Each header alone; all definitions that programs hold together; and those that replace others."""
    overridden = {name: f"{name}_streaming" for name in ("load_vector", "store_vector")}
    shared = [use for use in definitions() if use[0] not in overridden.values()]
    out = {name: HEAD + flattened(name, set()) for name in headers()}
    out["all"] = HEAD + device_code.device_code(shared)
    out["streaming in place"] = HEAD + device_code.device_code(shared, overridden)
    return {name: f"{text}\n{ENTRY}" for name, text in out.items()}


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("target", TARGETS)
def test_headers_compile_for_amd(target: str) -> None:
    for name, source in sources().items():
        build = amdgpu.build(source, target, {}, cache=CACHE, unsafe=True)
        assert build.ok, (name, build.log)


def test_headers_compile_for_the_cpu_target() -> None:
    for name, source in sources().items():
        build = cpu.build(source, {}, wave=64, checked=True, cache=CACHE, unsafe=True)
        assert build.ok, (name, build.log)


def test_headers_compile_by_nvrtc() -> None:
    for name, source in sources().items():
        build = nvrtc.build(source, {}, arch="sm_90", pool=warm.compilers(), cache=CACHE)
        assert build.ok, (name, build.log)


def written(uses: Iterable[tuple[str, str]]) -> list[str]:
    """The C names that the text defines."""
    text = device_code.device_code(uses)
    return [name for d in definitions().values() if d.text in text for name in d.names]


def test_a_definition_needs_what_its_text_names() -> None:
    assert written([("fast_divide", "")]) == ["fast_divide"]
    assert written([("lane_reduce", "")]) == ["shuffle_xor", "lane_reduce"]
    assert set(written([("sigmoid", "float")])) == {"fast_divide", "sigmoid"}
    assert set(written([("clamp", "double")])) == {"nan_max", "nan_min", "clamp"}
    assert "double sigmoid(double x)" in device_code.device_code([("sigmoid", "double")])


def test_an_overload_comes_with_the_types_that_it_is_for() -> None:
    both = device_code.device_code([("block_reduce", ""), ("ArgMax", "")])
    assert "block_reduce(IndexedValue<float, int> v, ArgMax op)" in both and "ArgMin" not in both
    assert "IndexedValue<float, int>" not in device_code.device_code([("block_reduce", "")])


def test_each_definition_follows_those_that_it_needs() -> None:
    places = {use: number for number, use in enumerate(definitions())}
    for use, definition in definitions().items():
        code = re.sub(r"//[^\n]*", "", definition.text)
        called = [need for need in definition.needs if re.search(rf"\b{need[0]}\b", code)]
        assert all(places[need] < places[use] for need in called), (use, called)


def test_directives_leave_no_trace() -> None:
    assert "//@" not in device_code.device_code(definitions())


def test_names_are_reserved() -> None:
    assert {"load_tile", "Tile", "nan_max", "expf", "while", "threadIdx"} <= reserved()


def test_an_unknown_use_is_an_error() -> None:
    with pytest.raises(KeyError):
        device_code.device_code([("no_such_function", "")])


def test_what_a_call_template_includes_is_complete() -> None:
    assert list(included("store_aligned")) == list(dict.fromkeys([*included("WideVector"), "store_aligned"]))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of headers in place of engine/device."""
    monkeypatch.setattr(device_code, "FOLDER", tmp_path)
    cached = (device_code.headers, device_code.definitions, device_code._source, device_code._parsed)
    for function in cached:
        function.cache_clear()
    yield tmp_path
    for function in cached:
        function.cache_clear()


def test_two_definitions_of_one_key_are_an_error(folder: Path) -> None:
    (folder / "twice.h").write_text("__device__ int f(int x) {\n    return x;\n}\n\n__device__ int f(float x) {\n}\n")
    with pytest.raises(ValueError, match="//@ key NAME"):
        device_code.definitions()


def test_text_that_defines_nothing_is_an_error(folder: Path) -> None:
    (folder / "stray.h").write_text("// a comment by itself\n")
    with pytest.raises(ValueError, match=r"stray\.h: no definition"):
        device_code.definitions()


def test_a_variant_of_text_that_has_changed_is_an_error() -> None:
    variant = DefinitionVariant("g", "f", {"x + 1": "x - 1"})
    assert variant.text("return x + 1;") == "return x - 1;"
    with pytest.raises(ValueError, match="which g replaces"):
        variant.text("return 1 + x;")


def test_every_variant_has_its_original() -> None:
    keys = {key for key, _ in definitions()}
    assert all({variant.of, variant.key} <= keys for variant in device_variants.VARIANTS)


def test_functions_of_doubles_call_the_math_library_for_doubles() -> None:
    text = "__device__ float f(float x) {\n    return fmaxf(expf(x) * 0.5f, 1.0f - sqrtf(x));\n}\n"
    assert as_double(text) == "__device__ double f(double x) {\n    return fmax(exp(x) * 0.5, 1.0 - sqrt(x));\n}\n"


def test_the_engine_s_version_names_the_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "hipwright"
    for name in ("capture", "engine/device"):
        (package / name).mkdir(parents=True)
    (package / "engine" / "version.py").write_text("")
    header = package / "engine" / "device" / "a.h"
    monkeypatch.setattr(version, "__file__", str(package / "engine" / "version.py"))
    keys = []
    for text in ("int a;\n", "int b;\n"):
        header.write_text(text)
        version.source_key.cache_clear()
        keys.append(version.source_key())
    version.source_key.cache_clear()
    assert keys[0] != keys[1]
