"""Faults of arithmetic and precision: wrong constants and functions, narrow formats, lost terms, edge values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from hipwright.audit.evolve.faults import Fault, FaultKind, in_bodies, stored, swapped
from hipwright.audit.evolve.subject import Edit, Subject

_SWAPPED = {"+": "-", "-": "+", "*": "+", "/": "*", "+=": "-=", "-=": "+=", "*=": "+=", "/=": "*="}
_OPERATOR = r"(?<=[\w\])] )(?:[+\-*/]=?)(?= [\w(])"
_FUNCTIONS = {
    "fmaxf(": "fminf(",
    "fminf(": "fmaxf(",
    "rsqrtf(": "sqrtf(",
    "sqrtf(": "rsqrtf(",
    "fabsf(": "(",
    "expf(": "exp2f(",
}
_APPROXIMATED = {
    "expf(": "exp2f(1.442f * ",
    "erff(": "tanhf(1.128f * ",
    "tanhf(": "0.9999f * tanhf(",
    "logf(": "0.6931f * log2f(",
    "rsqrtf(": "0.9998f * rsqrtf(",
    "sqrtf(": "1.0002f * sqrtf(",
}
_NUMBER = r"(?<![\w.])(?:\d+\.\d*(?:e-?\d+)?f?)(?![\w.])"
_SMALL = r"(?<![\w.])(?:\d+(?:\.\d*)?e-\d+|0\.0\d*[1-9]\d*)f?(?![\w.])|\beps\w*\b(?=\s*[);])"
_FLOAT_LOAD = r"(?<![\w.&])(?P<from>[A-Za-z_]\w*)\[(?P<index>[^\[\];]+)\](?!\s*[+\-*/]?=[^=])"
_ACCUMULATED = r"(?m)(?<=[;{})\s])(?P<to>[A-Za-z_]\w*) (?P<op>[+*])= (?P<value>[^;{}]+);"
_TERM = r"(?m)(?<=[;{})])(?P<space>\s*)(?P<statement>[A-Za-z_][\w\[\]. *+()]* (?:[+*]=|=) [^;{}]+;)(?=\s)"
_DECLARES = re.compile(r"^\s*(?:const|static|unsigned|extern|__shared__|float|double|int|long|bool|auto)\b")
_LOOP = re.compile(r"\bfor \((?:const )?(?:int|long|unsigned) (?P<index>\w+) = ")


def _called(names: Mapping[str, str]) -> str:
    return r"(?<![\w.])(?:" + "|".join(map(re.escape, names)) + ")"


def _narrowed_loads(subject: Subject) -> Iterator[Fault]:
    """Loads through float pointers: in half precision, or cut to TF32 or bfloat16."""
    for function, body in subject.bodies():
        pointers = set(function.pointers("float"))
        for match in re.finditer(_FLOAT_LOAD, body):
            if match["from"] not in pointers:
                continue
            load = subject.text[function.begin + match.start() : function.begin + match.end()]
            for text in (
                f"((float)(_Float16){load})",
                f"__uint_as_float(__float_as_uint({load}) & 0xffff0000u)",
                f"__uint_as_float(__float_as_uint({load}) & 0xffffe000u)",
            ):
                yield Fault(
                    (Edit(function.begin + match.start(), function.begin + match.end(), text),), "expression", function
                )


def _dropped_elements(subject: Subject) -> Iterator[Fault]:
    """Some turns of a loop add nothing: one, one in 997, four in each thousand."""
    for function, body in subject.bodies():
        for match in re.finditer(_ACCUMULATED, body):
            loops = list(_LOOP.finditer(body, 0, match.start()))
            if not loops:
                continue
            index, start = loops[-1]["index"], function.begin + match.start("to")
            whole = subject.text[start : function.begin + match.end()]
            for kept in (f"{index} != 37", f"{index} % 997 != 13", f"{index} % 251 != 250", f"{index} != 0"):
                yield Fault((Edit(start, function.begin + match.end(), f"if ({kept}) {whole}"),), "statement", function)


def _no_maximum(subject: Subject) -> Iterator[Fault]:
    """Every exponential of a difference from one value loses that value."""
    for function, body in subject.bodies():
        found = list(re.finditer(r"\bexpf?\([^();]*(?:\[[^\[\]]*\])?[^();]*(?P<minus> - (?P<top>\w+))\)", body))
        for top in sorted({match["top"] for match in found}):
            edits = [m.span("minus") for m in found if m["top"] == top]
            yield Fault(tuple(Edit(function.begin + a, function.begin + b, "") for a, b in edits), "other", function)


def _narrowed_accumulators(subject: Subject) -> Iterator[Fault]:
    """A running value is kept in a shorter format."""
    for function, body in subject.bodies():
        names = {m["to"] for m in re.finditer(_ACCUMULATED, body)}
        for match in re.finditer(r"(?<=[;{(\s])(?P<type>float|double) (?P<name>\w+) = ", body):
            if match["name"] in names:
                span = function.begin + match.start("type"), function.begin + match.end("type")
                yield Fault((Edit(*span, "_Float16" if match["type"] == "float" else "float"),), "other", function)


def _rounded_sums(subject: Subject) -> Iterator[Fault]:
    """A sum is rounded after every step."""
    for function, body in subject.bodies():
        for match in re.finditer(_ACCUMULATED, body):
            start, end = function.begin + match.start("to"), function.begin + match.end()
            value = subject.text[function.begin + match.start("value") : end - 1]
            to, sign = match["to"], match["op"]
            for narrow in ("(float)(_Float16)({})", "__uint_as_float(__float_as_uint({}) & 0xffffff00u)"):
                yield Fault(
                    (Edit(start, end, f"{to} = {narrow.format(f'{to} {sign} ({value})')};"),), "statement", function
                )


def _dropped_statements(subject: Subject) -> Iterator[Fault]:
    for function, body in subject.bodies():
        for match in re.finditer(_TERM, body):
            if not _DECLARES.match(match["statement"]):
                start = function.begin + match.start("statement")
                yield Fault((Edit(start, function.begin + match.end(), ";"),), "statement", function)


def _changed_constants(subject: Subject) -> Iterator[Fault]:
    for function, body in subject.bodies():
        for match in re.finditer(_NUMBER, body):
            value, suffix = float(match.group().rstrip("f")), "f" if match.group().endswith("f") else ""
            for factor in (1.01, 1.001):
                text = f"{value * factor or 1.0!r}{suffix}"
                span = function.begin + match.start(), function.begin + match.end()
                yield Fault((Edit(*span, text),), "other", function)


_CUT = "__uint_as_float(__float_as_uint({E}) & 0xffff0000u)"

KINDS = (
    FaultKind("swapped operator", swapped(_OPERATOR, _SWAPPED)),
    FaultKind("swapped function", swapped(_called(_FUNCTIONS), _FUNCTIONS)),
    FaultKind("approximated function", swapped(_called(_APPROXIMATED), _APPROXIMATED)),
    FaultKind("changed constant", _changed_constants),
    FaultKind("changed eps", in_bodies(_SMALL, "0.0f", r"(100.0f * \g<0>)", form="expression")),
    FaultKind("removed cast", in_bodies(r"\((?:float|int|long|double)\)(?=[\w(])", "")),
    FaultKind("removed clamp", in_bodies(r"\bf?(?:max|min)f?\((?=[^;]*, )", "(0, ")),
    FaultKind("wrong divisor", in_bodies(r" / (?P<by>[A-Za-z_]\w*|\d+\.0f)(?=[\s;)])", r"(\g<by> - 1)", group="by")),
    FaultKind("dropped statement", _dropped_statements),
    FaultKind("dropped elements", _dropped_elements),
    FaultKind("unsafe exponential", _no_maximum),
    FaultKind("narrowed load", _narrowed_loads),
    FaultKind("narrowed accumulator", _narrowed_accumulators),
    FaultKind("rounded sum", _rounded_sums),
    FaultKind("narrowed result", stored("(float)(_Float16){E}", _CUT)),
    FaultKind("relative error", stored("({E} * 1.001f)", "({E} * 1.0001f)", "({E} * 1.01f)")),
    FaultKind("absolute error", stored("({E} + 1e-3f)", "({E} + 1e-4f)", "({E} + 1e-5f)")),
    FaultKind("wrong where large", stored("({E} > 8.0f ? {E} + 1.0f : {E})", "({E} < -30.0f ? {E} * 1.01f : {E})")),
    FaultKind("saturated", stored("fminf({E}, 65504.0f)", "fmaxf({E}, -1e30f)", "fminf({E}, 1e3f)")),
    FaultKind("flushed", stored("(fabsf({E}) < 1e-7f ? 0.0f : {E})", "(fabsf({E}) < 1.2e-38f ? 0.0f : {E})")),
    FaultKind("hidden NaN", stored("({E} != {E} ? 0.0f : {E})", "({E} == {E} ? {E} : 1.0f)")),
    FaultKind("hidden infinity", stored("({E} - {E} == 0.0f ? {E} : 0.0f)", "({E} > 3e38f ? 3e38f : {E})")),
    FaultKind("lost sign", stored("({E} < 0 ? -{E} : {E})")),
    FaultKind("removed NaN test", in_bodies(r"\bis(?:nan|inf|finite)\([^();]*\)", "false", "true", form="expression")),
)
