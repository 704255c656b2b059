"""Python text of other formats: devices, modules that are joined, and typed files."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.evaluation.formats.portable import function_of, joined, on_default_device, parameters
from hipwright.evaluation.formats.read import Malformed, decoded, json_lines, plain_name, python_checked, yaml_record


class Made(msgspec.Struct):
    """A record of the tests."""

    name: str
    sizes: list[dict[str, int]] = []


def test_devices_become_the_default_one() -> None:
    text = "import torch\nx = torch.ones(3, device='cuda').cuda()\nd = torch.device('cuda:0')\ny = x.to('cuda')\n"
    moved = on_default_device(text)
    assert "cuda" not in moved and moved.count("torch.get_default_device()") == 4
    import torch

    names: dict[str, torch.Tensor] = {}
    exec(moved, names)
    assert names["y"].device == torch.get_default_device()


def test_text_without_devices_keeps_its_comments() -> None:
    for text in ("x = 1  # one\n", "# for cuda\nx = 1\n", "if x.device.type == 'cuda':  # either\n    pass\n"):
        assert on_default_device(text) == text


@given(st.text(max_size=60))
def test_any_text_moves_or_does_not_parse(text: str) -> None:
    try:
        ast.parse(on_default_device(text))
    except (SyntaxError, ValueError):
        with pytest.raises((SyntaxError, ValueError)):
            ast.parse(text)


def test_modules_are_joined_in_order() -> None:
    modules = {
        "utils": "from __future__ import annotations\n\ndef double(x):\n    return 2 * x\n",
        "reference": "from utils import double as twice\nimport math\n\ndef run(x):\n    return twice(math.ceil(x))\n",
    }
    names: dict[str, object] = {}
    text = joined(modules, "here")
    exec(text, names)
    assert names["run"](4) == 8 and text.startswith("from __future__ import annotations")


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ("import a\n", "b.py line 1: `import` of a neighbour"),
        ("def f():\n    return 1\n", "a.py and b.py both define f"),
        ("def f(:\n", "b.py line 1: no Python"),
    ],
)
def test_what_cannot_be_joined(second: str, why: str) -> None:
    with pytest.raises(Malformed, match="here") as caught:
        joined({"a": "def f():\n    return 0\n", "b": second}, "here")
    assert why in str(caught.value)


def test_parameters_of_a_function() -> None:
    text = "def f(a, /, b, *, c=1): pass\ndef g(*args): pass\n"
    assert parameters(function_of(text, "f", "here"), "here") == (["a", "b"], ["c"])
    with pytest.raises(Malformed, match=r"g takes \*args"):
        parameters(function_of(text, "g", "here"), "here")
    with pytest.raises(Malformed, match="here: no function h"):
        function_of(text, "h", "here")


def test_what_is_wrong_names_file_and_field(tmp_path: Path) -> None:
    for text, why in {
        "name: x\nsizes: [{n: big}]\n": "one.yml: sizes[0][...]: Expected `int`, got `str`",
        "sizes: []\n": "one.yml: name: missing",
        "name: &a x\nsizes: *a\n": "one.yml: aliases",
        "name: [\n": "one.yml: no YAML",
        "name: 2026-99-99\n": "one.yml: ",
    }.items():
        (tmp_path / "one.yml").write_text(text)
        with pytest.raises(Malformed) as caught:
            yaml_record(tmp_path / "one.yml", tmp_path, Made)
        assert str(caught.value).startswith(why), text
    (tmp_path / "two.jsonl").write_text('{"name": "x"}\n\n{"name": 3}\n')
    with pytest.raises(Malformed, match=r"two.jsonl line 3: name: Expected `str`, got `int`"):
        list(json_lines(tmp_path / "two.jsonl", tmp_path, Made))
    with pytest.raises(Malformed, match=r"gone.jsonl: No such file"):
        list(json_lines(tmp_path / "gone.jsonl", tmp_path, Made))


@given(st.text(max_size=80))
def test_any_text_is_a_record_or_malformed(text: str) -> None:
    for check in (lambda: decoded(text, Made, "here"), lambda: python_checked(text, "here")):
        try:
            check()
        except Malformed as error:
            assert str(error).startswith("here")


@given(st.text(max_size=40))
def test_names_are_never_paths(text: str) -> None:
    try:
        name = plain_name(text, "here")
    except Malformed:
        return
    assert Path("a", name).parent == Path("a") and not name.startswith(".")
