"""A plan for a host function without a plan comment: its parameters are matched to the task, by name, then by order.

Whatever is not said by an equal name is an assumption; each is told, and the judge decides. What neither names nor
order tell is refused with the parameter and the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hipwright.program.convert.cpp_host import STREAM_TYPE, parameters
from hipwright.program.convert.cpp_text import CppItem, Inconvertible, without_template
from hipwright.program.convert.host_value import kind_of
from hipwright.program.standalone.task_names import TaskNames

_OUTPUTS = {"out", "output", "y", "z", "result", "dst", "res", "o", "c", "outputs"}
_ALIASES = {"weight": {"w", "gamma", "scale", "g"}, "bias": {"b", "beta", "shift"}}
_COUNTS = {"n", "size", "numel", "total", "count", "len", "length", "num_elements", "elements", "num", "nelem"}
_ROWS = {"rows", "n_rows", "num_rows", "nrows", "batch", "batch_size", "m", "b"}
_COLUMNS = {"cols", "n_cols", "num_cols", "ncols", "columns", "dim", "d", "hidden", "width", "features", "n"}


@dataclass
class InferredPlan:
    """The plan's lines and what they assume, a sentence each."""

    lines: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)


def inferred_plan(function: CppItem, names: TaskNames, types: dict[str, str]) -> InferredPlan:
    """The plan that calls `function` for the task. types: the source's type aliases. Raises Inconvertible."""
    return _Matching(function, names, types).plan()


class _Matching:
    def __init__(self, function: CppItem, names: TaskNames, types: dict[str, str]) -> None:
        self.function = function
        self.names = names
        self.texts = _parameter_texts(function)
        self.params = [(ctype, name) for ctype, name in parameters(function.head) if not STREAM_TYPE.search(ctype)]
        self.kinds = {name: kind_of(ctype, types) for ctype, name in self.params}
        self.found: dict[str, str] = {}
        self.assumed: list[str] = []

    def plan(self) -> InferredPlan:
        tensors = [name for _, name in self.params if self.kinds[name] in ("tensor", "pointer")]
        outputs = self.outputs(tensors)
        self.match_tensors([name for name in tensors if name not in outputs])
        like = next((self.found[name] for name in tensors if name in self.found), "")
        given = [self.found[name] for name in tensors if self.found.get(name) in self.names.inputs]
        lines = [f"{name} = {name}.contiguous()" for name in dict.fromkeys(given)]
        if outputs and not like:
            raise self.refused(f"{self.function.name} has no input")
        numbers = [name for _, name in self.params if self.kinds[name] not in ("tensor", "pointer")]
        shaped = self.match_numbers(numbers, [self.found[name] for name in tensors if name in self.found])
        for name in outputs:
            self.found[name] = "out"
            lines.append(f"out = torch.empty({shaped or f'{like}.shape'}, dtype={like}.dtype)")
            what = f"shape ({shaped.strip('()')})" if shaped else f"the shape of {like}"
            self.assumed.append(f"`{name}` is the output, with {what} and the dtype of {like}")
        args = ", ".join(self.found[name] for _, name in self.params if name in self.found)
        call = f"{self.function.name}({args})"
        ends = [call, "return out"] if outputs else [f"return {call}"]
        return InferredPlan([*lines, *ends], self.assumed)

    def outputs(self, tensors: list[str]) -> list[str]:
        """The parameters that the function writes: none where it returns its result."""
        if not re.search(r"\bvoid\s*$", re.split(rf"\b{self.function.name}\s*\(", self.function.head)[0].rstrip()):
            return []
        written = [name for name in tensors if self.kinds[name] == "pointer" and "const" not in self.texts[name]]
        named = [name for name in (written or tensors) if _plain(name) in _OUTPUTS]
        chosen = written if len(written) == 1 else named
        if len(chosen) != 1:
            told = ", ".join(f"`{name}`" for name in written) or "none"
            raise self.refused(f"{self.function.name} returns nothing, and its one output cannot be told: {told}")
        return chosen

    def match_tensors(self, wanted: list[str]) -> None:
        """Matches inputs and the model's tensors, each to one parameter."""
        known = [*self.names.inputs, *self.names.tensors]
        for name in wanted:
            fitting = [one for one in known if one not in self.found.values() and _plain(name) in _spelled(one, known)]
            if len(fitting) == 1:
                self.found[name] = _text(fitting[0], self.names)
                known.remove(fitting[0])
        left = [name for name in wanted if name not in self.found]
        inputs = [one for one in self.names.inputs if one in known]
        states = [one for one in self.names.tensors if one in known]
        offered = next((some for some in (inputs, [*inputs, *states]) if len(some) == len(left)), None)
        if offered is None:
            listed = ", ".join(_text(one, self.names) for one in (*inputs, *states)) or "nothing"
            unmatched = ", ".join(f"`{name}`" for name in left)
            raise self.refused(f"which of the task's tensors is {unmatched}? still free: {listed}")
        for name, one in zip(left, offered, strict=True):
            self.found[name] = _text(one, self.names)
            self.assumed.append(f"`{name}` is the task's {one}, by order")

    def match_numbers(self, wanted: list[str], tensors: list[str]) -> str:
        """Matches numbers; returns the output's shape where sizes of a matrix product tell it."""
        left = []
        for name in wanted:
            if name in self.names.inputs:
                self.found[name] = name
            elif name.lower() in (known := {key.lower(): text for key, text in self.names.numbers.items()}):
                self.found[name] = known[name.lower()]
            elif re.search(r"=", self.texts[name]):
                self.assumed.append(f"`{name}` keeps the default that {self.function.name} gives it")
            else:
                left.append(name)
        shape = ""
        sizes = {name: "" for name in left if self.kinds[name] == "int"}
        plain = [_plain(name) for name in sizes]
        if tensors and len(sizes) == len(left):
            first = tensors[0]
            if len(plain) == 1 and plain[0] in _COUNTS:
                sizes = dict.fromkeys(sizes, f"{first}.numel()")
            elif len(plain) == 2 and plain[0] in _ROWS and plain[1] in _COLUMNS:
                texts = (f"{first}.numel() // {first}.shape[-1]", f"{first}.shape[-1]")
                sizes = dict(zip(sizes, texts, strict=True))
            elif sorted(plain) == ["k", "m", "n"] and len(tensors) >= 2:
                by = {"m": f"{first}.shape[0]", "n": f"{tensors[1]}.shape[1]", "k": f"{first}.shape[1]"}
                sizes = {name: by[_plain(name)] for name in sizes}
                shape = f"({by['m']}, {by['n']})"
        for name in left:
            if not sizes.get(name):
                raise self.refused(f"what `{name}` of {self.function.name} is cannot be told from the task")
            self.found[name] = sizes[name]
            self.assumed.append(f"`{name}` is {sizes[name]}")
        return shape

    def refused(self, why: str) -> Inconvertible:
        return Inconvertible(why, self.function.line)


def _text(path: str, names: TaskNames) -> str:
    return path if path in names.inputs else f"self.{path}"


def _plain(name: str) -> str:
    """A parameter's name without the marks of device memory and pointers."""
    return re.sub(r"^(?:d_|dev_|in_|p_)|(?:_ptr|_d|_dev|_gpu|_tensor|_)$", "", name.lower())


def _spelled(path: str, known: list[str]) -> set[str]:
    """The names by which a parameter of a function may mean an input or a path; its last part where it is the only."""
    plain = path.lower()
    found = {plain.replace(".", "_"), plain.replace(".", "")}
    last = plain.split(".")[-1]
    if sum(one.lower().split(".")[-1] == last for one in known) == 1:
        found |= {last, *_ALIASES.get(last, ())}
    return found


def _parameter_texts(function: CppItem) -> dict[str, str]:
    """Each parameter's whole text by its name."""
    _, plain = without_template(function.head)
    at = re.search(rf"\b{function.name}\s*\(", plain)
    inner = plain[at.end() if at else 0 : plain.rindex(")")]
    depth, part, parts = 0, "", []
    for ch in inner + ",":
        depth += {"<": 1, "(": 1, "{": 1, ">": -1, ")": -1, "}": -1}.get(ch, 0)
        if ch == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += ch
    names = [name for _, name in parameters(function.head)]
    texts = [one for one in parts if one.strip() not in ("", "void")]
    if len(names) != len(texts):
        raise Inconvertible(f"the parameters of {function.name} cannot be read", function.line)
    return dict(zip(names, texts, strict=True))
