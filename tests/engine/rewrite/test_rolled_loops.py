"""Loops that tracing writes out: one loop of the plan where they are proved to be loops, else as they are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from hipwright.engine import author, space, write
from tests.engine.harness import captured, check, leaves, run

STEPS, WIDTH = 18, 12
Cell = Callable[["Cells", Any, Any], Any]


class Cells(nn.Module):
    """Layers for cells that are written out; `forward` is one of the functions below."""

    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.each = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(STEPS)])
        self.body = body

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> Any:
        return self.body(self, x, h)


def cell(m: Cells, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return torch.tanh(m.a(x) + m.b(h))


def stacked(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    seen = []
    for t in range(x.shape[0]):
        h = cell(m, x[t], h)
        seen.append(h)
    return torch.stack(seen, 1), h


def stacked_last(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    seen = []
    for row in x:
        h = cell(m, row, h)
        seen.append(h)
    return torch.stack(seen, -1)


def both_ways(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    there, back, g = [], [], h
    for t in range(x.shape[0]):
        h = cell(m, x[t], h)
        there.append(h)
    for t in reversed(range(x.shape[0])):
        g = torch.tanh(m.b(x[t]) + m.a(g))
        back.append(g)
    return torch.cat([torch.stack(there), torch.stack(back[::-1])], -1)


def joined(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    seen = [h]
    for t in range(x.shape[0]):
        h = cell(m, x[-1 - t], h)
        seen.append(h)
    return torch.cat(seen, 1), torch.cat(seen, 0), torch.stack(seen, 1)


def without_a_state(m: Cells, x: torch.Tensor, h: Any) -> Any:
    h, seen = None, []
    for row in x.unbind(0):
        h = torch.tanh(m.a(row) if h is None else m.a(row) + m.b(h))
        seen.append(h)
    return torch.stack(seen)


def two_layers(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    states, seen = [h, h * 2], []
    for t in range(x.shape[0]):
        y = x[t]
        for k, layer in enumerate((m.a, m.b)):
            states[k] = torch.tanh(layer(y) + torch.softmax(states[k], -1))
            y = states[k]
        seen.append(y)
    return torch.stack(seen), states[0]


def one_layer_after_the_other(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    for layer in (m.a, m.b):
        g, seen = h, []
        for t in range(x.shape[0]):
            g = torch.tanh(layer(x[t]) + torch.softmax(g, -1))
            seen.append(g)
        x = torch.stack(seen)
    return x


def swapped(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    g = h + 1
    for t in range(x.shape[0]):
        h, g = g, torch.tanh(m.b(h) + x[t])
    return h, g


def some(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    seen = []
    for t in range(x.shape[0]):
        h = cell(m, x[t], h)
        seen.append(h)
    return seen[3] + seen[7], seen[-1] * 2, torch.stack(seen[5:9]), seen[4]


def windows(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    for t in range(x.shape[0] - 2):
        h = torch.tanh(m.b(h) + x[t : t + 3].sum(0))
    return h


def nested(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    for t in range(x.shape[0]):
        h = h + x[t]
        for _ in range(16):
            h = torch.tanh(m.b(h))
    return h


def two_back(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    seen = [h, h * 2]
    for t in range(x.shape[0]):
        seen.append(torch.tanh(m.a(x[t]) + m.b(seen[-1]) - 0.25 * seen[-2]))
    return torch.stack(seen, 1)


def only_three_back(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    seen = [h, h * 2, h - 1]
    for t in range(x.shape[0]):
        seen.append(torch.tanh(m.b(seen[-3]) + x[t]))
    return torch.stack(seen[-3:])


def two_histories(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    high, low = [h, h * 2], [h - 1, h * 3, h]
    for t in range(x.shape[0]):
        high.append(torch.tanh(m.a(low[-3]) + torch.softmax(high[-2], -1)))
        low.append(torch.tanh(m.b(low[-2]) + high[-1] + x[t]))
    return torch.stack(low), high[-1]


def back_and_first(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    seen = []
    for t in range(x.shape[0]):
        old = seen[-4] if t >= 4 else h
        seen.append(torch.tanh(m.b(old) + x[t]))
    return torch.stack(seen)


ROLLED = {
    stacked: 1,
    stacked_last: 1,
    both_ways: 2,
    joined: 1,
    without_a_state: 1,
    two_layers: 1,
    one_layer_after_the_other: 2,
    swapped: 1,
    some: 1,
    windows: 1,
    nested: 2,
    two_back: 1,
    only_three_back: 1,
    two_histories: 1,
    back_and_first: 1,
}


def own_weights(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    for t in range(x.shape[0]):
        h = torch.tanh(m.each[t](h) + x[t])
    return h


def one_other_step(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    for t in range(x.shape[0]):
        h = (torch.sigmoid if t == 9 else torch.tanh)(m.b(h) + x[t])
    return h


def counted_by_value(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    for t in range(x.shape[0]):
        h = torch.tanh(m.b(h) * (0.1 * t) + x[t])
    return h


def one_other_place(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    for t in range(x.shape[0]):
        h = torch.tanh(m.b(h) + x[t if t != 9 else 3])
    return h


def one_older_state(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
    seen = [h]
    for t in range(x.shape[0]):
        seen.append(torch.tanh(m.b(seen[-1] if t != 9 else seen[2]) + x[t]))
    return seen[-1]


def draw(dtype: torch.dtype = torch.float32, steps: int = STEPS) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(5)
    return [torch.randn(*s, generator=made).to(dtype) for s in ((steps, 3, WIDTH), (3, WIDTH))]


def loops(text: str) -> int:
    """Loops of a plan."""
    return len(re.findall(r"^ +for \w+ in range\(1, ", text[text.index("def forward") :], re.MULTILINE))


@pytest.mark.parametrize(
    "body",
    [pytest.param(b, marks=pytest.mark.slow) if b is nested else b for b in ROLLED],
    ids=lambda b: b.__name__,
)
def test_a_loop_is_a_loop_of_the_plan(body: Callable[..., Any]) -> None:
    model = Cells(body)
    program = author(captured(model, draw())).program
    assert loops(program.text) == ROLLED[body]
    check(model, draw())


@pytest.mark.parametrize("body", [stacked, two_layers, some, two_histories], ids=lambda b: b.__name__)
def test_loops_of_half_types_and_of_library_calls_are_right(body: Callable[..., Any]) -> None:
    check(Cells(body).to(torch.bfloat16), draw(torch.bfloat16))
    model, inputs = Cells(body), draw()
    program = write(captured(model, inputs), {"library": True})
    assert loops(program.text) == 1
    assert "__global__" not in program.text
    outputs = leaves(run(program, model, inputs)[0])
    for made, wanted in zip(outputs, leaves(model(*inputs)), strict=True):
        torch.testing.assert_close(made, wanted)
    assert len({t.untyped_storage().data_ptr() for t in outputs}) == len(outputs)  # nothing shares memory


@pytest.mark.parametrize(
    "body", [own_weights, one_other_step, counted_by_value, one_other_place, one_older_state], ids=lambda b: b.__name__
)
def test_steps_that_differ_stay_written_out(body: Callable[..., Any]) -> None:
    model = Cells(body)
    assert loops(author(captured(model, draw())).program.text) == 0
    check(model, draw())


def test_pointwise_steps_are_left_to_fuse() -> None:
    def body(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
        for t in range(x.shape[0]):
            h = torch.tanh(h + x[t])
        return h

    assert loops(author(captured(Cells(body), draw())).program.text) == 0


def test_a_search_may_write_out_the_steps() -> None:
    model, inputs = Cells(stacked), draw()
    graph = captured(model, inputs)
    (key,) = (k for k in space(graph) if k.startswith("roll:"))
    assert space(graph)[key].options == ("loop", "steps")
    assert loops(write(graph, {key: "steps"}).text) == 0


def digits(text: str) -> str:
    return re.sub(r"\d+", "0", text)


def test_the_text_does_not_depend_on_the_number_of_steps() -> None:
    made = [author(captured(Cells(some), draw(steps=n))).program.text for n in (24, 40)]
    assert digits(made[0]) == digits(made[1])


@pytest.mark.parametrize("body", [stacked, both_ways, joined, some], ids=lambda b: b.__name__)
def test_captures_at_two_lengths_give_a_program_for_every_length(body: Callable[..., Any]) -> None:
    model = Cells(body)
    first, other = (captured(model, draw(steps=n)) for n in (STEPS, 23))
    program = author(msgspec.structs.replace(first, again=other)).program
    assert f"shape[0] == {STEPS}" not in program.text
    for steps in (9, STEPS, 31):
        inputs = draw(steps=steps)
        for got, wanted in zip(leaves(run(program, model, inputs)[0]), leaves(model(*inputs)), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def test_a_number_that_follows_the_length_otherwise_leaves_it_fixed() -> None:
    def body(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
        return stacked(m, x, h)[0] / x.shape[0] ** 0.5

    model = Cells(body)
    first, other = (captured(model, draw(steps=n)) for n in (STEPS, 23))
    program = author(msgspec.structs.replace(first, again=other)).program
    assert f"shape[0] == {STEPS}" in program.text
    assert loops(program.text) == 1
    check(model, draw())


@st.composite
def recurrences(draw_: st.DrawFn) -> Callable[..., Any]:
    """A random recurrence of one or two states, with some of its values gathered."""
    first, second = (draw_(st.sampled_from(["linear", "softmax", "mean", "plain"])) for _ in range(2))
    backwards, two = draw_(st.booleans()), draw_(st.booleans())
    gather = draw_(st.sampled_from(["stack", "cat", "last"]))
    other = draw_(st.integers(-1, STEPS - 1))

    def mixed(m: Cells, kind: str, h: torch.Tensor) -> torch.Tensor:
        if kind == "linear":
            return torch.as_tensor(m.b(h))
        return {"softmax": h.softmax(-1), "mean": h - h.mean(-1, keepdim=True), "plain": h * 0.5}[kind]

    def body(m: Cells, x: torch.Tensor, h: torch.Tensor) -> Any:
        g, seen = h * 0.5, []
        for t in range(x.shape[0]):
            step = m.a(x[x.shape[0] - 1 - t if backwards else t])
            new = torch.tanh(step + mixed(m, first, h) + (mixed(m, second, g) if two else 0))
            h, g = (torch.sigmoid(new) if t == other else new), h
            seen.append(h + g)
        if gather == "last":
            return h, g
        return (torch.stack(seen, 1) if gather == "stack" else torch.cat(seen, -1)), h

    return body


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(recurrences())
def test_random_recurrences_are_right(body: Callable[..., Any]) -> None:
    check(Cells(body), draw())
