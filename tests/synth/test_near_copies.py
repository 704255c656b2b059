"""Near copies by their text: planted copies are found, other tasks are not."""

from __future__ import annotations

import random

import pytest

from hipwright.synth.compose import compose
from hipwright.synth.near_copies import THRESHOLD, NearCopyIndex, likeness
from hipwright.synth.text_steps import text_steps
from tests.dataset.planted import WAYS, planted
from tests.synth.captured import task


def drafts(count: int, seed: int) -> dict[str, tuple[tuple[str, ...], str]]:
    """{name: (operators, source)} of composed tasks, each combination of operators once."""
    rng, found = random.Random(seed), {}
    while len(found) < count:
        draft = compose(rng)
        if tuple(sorted(draft.operators)) not in {tuple(sorted(o)) for o, _ in found.values()}:
            found[draft.name] = (draft.operators, draft.source)
    return found


def test_every_planted_copy_is_found_among_others_and_no_other_task_is() -> None:
    others = drafts(230, 21)
    bases = dict(list(others.items())[:30])
    index = NearCopyIndex()
    for name, (_, source) in bases.items():
        assert index.add(name, source) is None
    tried = 0
    for name, (_, source) in bases.items():
        for way, text in planted(source).items():
            assert index.add(f"{name} {way}", text) == name, way
            tried += 1
    assert tried > 8 * len(bases)
    flagged = [name for name, (_, source) in others.items() if name not in bases and index.find(text_steps(source))]
    assert flagged == []


def test_every_way_to_plant_a_copy_applies_to_some_task() -> None:
    used = {way for _, source in drafts(60, 4).values() for way in planted(source)}
    assert used == {*WAYS, "everything"}


SAME = {
    "method, function, module": ("return x.relu()", "return F.relu(x)", "return nn.ReLU()(x)", "return torch.relu_(x)"),
    "operator and function": ("return x + self.w", "return torch.add(x, self.w)", "y = x\ny += self.w\nreturn y"),
    "names": ("y = x.exp()\nz = y.tanh()\nreturn z", "return torch.tanh(torch.exp(x))"),
    "sizes and constants": ("return torch.softmax(x * 0.5, dim=1)", "return torch.softmax(0.25 * x, dim=-1)"),
    "views": ("return x.view(-1).reshape(8, 12).contiguous().exp()", "return x.exp()"),
    "layers": ("return nn.Sequential(nn.Tanh(), nn.GELU())(x)", "return F.gelu(torch.tanh(x))"),
}


@pytest.mark.parametrize("name", SAME)
def test_spellings_of_one_step_are_equal(name: str) -> None:
    first, *others = (text_steps(task(body, "w")) for body in SAME[name])
    assert first
    assert all(likeness(first, other) == 1.0 for other in others)


def test_helper_functions_are_followed() -> None:
    helped = (
        task("return self.gate(x.exp())")
        .replace("    def forward", "    def gate(self, y):\n        return outside(y)\n\n    def forward")
        .replace("class Model", "def outside(z):\n    return z.sigmoid()\n\n\nclass Model")
    )
    assert text_steps(helped) == text_steps(task("return x.exp().sigmoid()"))


def test_modules_constructed_in_init_equal_their_functions() -> None:
    made = task("return self.net(x)").replace(
        "super().__init__()",
        "super().__init__()\n        layers = [nn.Linear(12, 12), nn.LayerNorm(12)]\n"
        "        self.net = nn.Sequential(*layers)",
    )
    assert text_steps(made) == text_steps(task("return F.layer_norm(F.linear(x, self.w2), (12,))", "w2"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("return x.exp()", "return x.tanh()"),
        ("y = x.exp()\nreturn y.sum() * y.amax()", "return x.exp().sum() * x.amax().sqrt() + 1"),
        ("return x.relu().softmax(-1).sum(-1)", "return x.softmax(-1).sum(-1).relu()"),
    ],
)
def test_other_operators_or_another_order_is_no_near_copy(one: str, other: str) -> None:
    assert likeness(text_steps(task(one)), text_steps(task(other))) < THRESHOLD


def test_text_that_is_not_python_is_compared_by_its_calls() -> None:
    whole = task("y = torch.relu(x)\nz = torch.softmax(y, dim=1)\nreturn torch.logsumexp(z, dim=0)")
    broken = whole.replace("    def forward(self, x):", "    def forward(self, x:")
    assert text_steps(broken)
    index = NearCopyIndex()
    index.add("broken", broken)
    assert index.add("again", "# mine\n" + broken.replace("y", "yy")) == "broken"
    assert index.add("other", broken.replace("softmax", "sigmoid").replace("relu", "exp")) is None


@pytest.mark.parametrize("text", ["", "x = 1", "class Model: pass", "def f(:\n", "\x00", "(" * 3000])
def test_texts_without_steps_are_never_near_copies(text: str) -> None:
    index = NearCopyIndex()
    assert index.add("one", text) is None
    assert index.add("two", text) is None


def test_the_nearest_task_is_returned_and_a_copy_is_not_kept() -> None:
    index = NearCopyIndex()
    base = "return x.exp().tanh().sigmoid().sum(-1).relu().cos()"
    index.add("base", task(base))
    assert index.add("copy", task(base)) == "base"
    assert index.find(text_steps(task(base))) == [("base", 1.0)]
