"""Device headers as text: their order, their id, and the way into a source and back."""

from __future__ import annotations

import re

import pytest

from hipwright.errors import ProgramError
from hipwright.program import parse
from hipwright.toolchain import device_headers
from hipwright.toolchain.device_headers import inlined, inlined_for, names, shortened, with_dependencies

SOURCE = """#include <hip/hip_runtime.h>
#include <hipwright/streaming_loads.h>
#include <hipwright/tile.h>  // tiles
  # include <hipwright/moments.h>

extern "C" __global__ void run(float* x) {
    x[0] = 1.0f;
}
"""


def test_each_header_follows_those_that_it_includes() -> None:
    order = with_dependencies(names())
    assert sorted(order) == list(names())
    for name in names():
        before = order[: order.index(name)]
        assert set(device_headers.included(device_headers.text(name))) <= set(before)


def test_each_header_says_what_it_offers_and_is_read_once() -> None:
    for name in names():
        text = device_headers.text(name)
        about, *rest = text.splitlines()
        once = "#pragma once" in rest[:2] or f"#elif !defined(HIPWRIGHT_{name.upper()})" in rest
        assert about.startswith("// ") and once, name


def test_loads_of_tiles_leave_no_element_undefined() -> None:
    """A compiler may take a branch on an undefined value for one that all lanes take alike. NVIDIA's leaves out what
    brings a warp together again, and shuffles behind it exchange garbage.
    """
    for name in names():
        for function in re.split(r"\n(?=template|__device__)", device_headers.text(name)):
            if "load_" in function.split("{")[0]:
                assert not re.search(r"Tile<[^;=()]*> \w+;", function), function


def test_inlined_headers_come_once_and_back() -> None:
    whole = inlined(SOURCE)
    assert "#include <hipwright/" not in whole and "#pragma once" not in whole
    assert whole.count("struct Tile {") == whole.count("struct alignas(sizeof(T) * N < 16") == 1
    assert whole.index("HIPWRIGHT_STREAMING_LOADS 1") < whole.index("#ifndef HIPWRIGHT_STREAMING_LOADS")
    back = shortened(whole)
    assert device_headers.included(back) == device_headers.included(SOURCE) and inlined(back) == whole
    assert inlined("int x;\n") == "int x;\n" and inlined("#include <hipwright/none.h>\n").count("none.h") == 1


@pytest.mark.parametrize("old, new", [("struct Tile {", "struct Tile  {"), ("// Loads", "// loads")])
def test_a_changed_block_is_the_program_s_own_text(old: str, new: str) -> None:
    changed = inlined(SOURCE).replace(old, new, 1)
    assert shortened(changed) == changed


def test_line_numbers_stay_those_of_the_source() -> None:
    lines = inlined_for(SOURCE, "kernel.hip").splitlines()
    at = lines.index('#line 3 "kernel.hip"')
    assert lines[at + 1 :] == re.sub(r"(?m)^\s*#\s*include <hipwright.*$", "", SOURCE).splitlines()[2:]


def test_an_unknown_header_is_an_error() -> None:
    with pytest.raises(KeyError):
        device_headers.text("no_such_header")


def test_a_knob_with_a_name_of_an_included_header_is_refused_with_its_line() -> None:
    hip = "HIP = r'''\n#include <hipwright/scan.h>\n'''\n\n"
    text = hip + "WIDTH = knob(4, choices=[4, 8])\n\n\ndef forward(self, x):\n    return x\n"
    with pytest.raises(ProgramError, match=r"line 5.*WIDTH.*device header"):
        parse(text)
    parse(text.replace("hipwright/scan.h", "hip/hip_runtime.h"))
