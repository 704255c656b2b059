"""Modules that draw random numbers: the program draws the module's own numbers, and every other program is refused."""

from __future__ import annotations

import pytest

from hipwright.engine.knobs import EVERY_OPERATOR, GIVEN_UP, PLAIN_PLAN
from hipwright.errors import TaskError
from hipwright.events import silent
from hipwright.machine import Machine
from hipwright.records import Evaluation
from tests.verify.written_tasks import judged, task

PLAN = "HIP = r''''''\n\n\ndef forward(self, x):\n"
ROWS = "torch.randn(12, 33)"

FAMILY = {
    "dropout": ("self.d = nn.Dropout(0.3)", "return torch.softmax(self.d(x) * 2, -1)", ROWS),
    "dropout of half precision": ("", "return F.dropout(x, 0.3, True) * 3 + 1", f"{ROWS}.bfloat16()"),
    "two dropouts": ("self.a = nn.Linear(33, 33)", "return F.dropout(x, 0.5) + F.dropout(self.a(x), 0.2)", ROWS),
    "dropout of a transposed value": ("", "return F.dropout(x.transpose(1, 2) * 2, 0.3)", "torch.randn(3, 12, 33)"),
    "dropout of channels last": (
        "",
        "return F.dropout(F.relu(x), 0.3) + 1",
        "torch.randn(2, 5, 4, 6).to(memory_format=torch.channels_last)",
    ),
    "whole channels": ("self.c = nn.Conv2d(3, 8, 3)", "return F.dropout2d(self.c(x), 0.3)", "torch.randn(4, 3, 9, 9)"),
    "alpha dropout": ("", "return F.alpha_dropout(F.selu(x), 0.2, True)", ROWS),
    "batch norm and dropout": (
        "self.c = nn.Conv2d(3, 8, 3)\n        self.b = nn.BatchNorm2d(8)",
        "return F.dropout(torch.relu(self.b(self.c(x))), 0.3, self.training).mean((2, 3))",
        "torch.randn(4, 3, 9, 9)",
    ),
    "initial state": (
        "self.g = nn.GRU(16, 24, batch_first=True)",
        "return self.g(x, torch.randn(1, x.shape[0], 24))[0]",
        "torch.randn(4, 7, 16)",
    ),
    "between recurrent layers": (
        "self.a = nn.LSTM(16, 24, 2, dropout=0.4, batch_first=True)",
        "return self.a(x)[0]",
        "torch.randn(2, 6, 16)",
    ),
    "in a loop": (
        "self.c = nn.GRUCell(16, 16)",
        "h = torch.zeros(x.shape[0], 16)\n        for t in range(3):\n"
        "            h = F.dropout(self.c(x[:, t], h), 0.2)\n        return h",
        "torch.randn(3, 3, 16)",
    ),
    "uniform and normal": ("", "return torch.tanh(x * torch.rand_like(x)) + torch.randn(x.shape[1])", ROWS),
    "noise of half precision": ("", "return x + 0.1 * torch.randn_like(x)", f"{ROWS}.half()"),
    "normal with moments": ("", "return torch.normal(x, torch.exp(0.1 * x))", ROWS),
    "bernoulli of a share": ("", "return x * torch.bernoulli(x, 0.4)", ROWS),
    "bernoulli of probabilities": ("", "return x * torch.bernoulli(torch.sigmoid(x))", ROWS),
    "in place": ("", "return x / torch.empty_like(x).exponential_(2.0) + torch.empty(33).uniform_(-1, 2)", ROWS),
    "gumbel softmax": ("", "return F.gumbel_softmax(x, tau=0.7)", ROWS),
    "hard gumbel softmax": ("", "return F.gumbel_softmax(x, hard=True)", ROWS),
    "randint": ("self.e = nn.Embedding(7, 33)", "return x + self.e(torch.randint(0, 7, (x.shape[0],)))", ROWS),
    "randperm": ("", "return torch.relu(x[:, torch.randperm(x.shape[1])])", ROWS),
    "windows that small shapes leave in place": (
        "self.p = nn.FractionalMaxPool2d(3, output_ratio=(0.5, 0.5))",
        "return torch.relu(self.p(x))",
        "torch.randn(3, 2, 26, 23)",
    ),
    "multinomial": ("", "return x.gather(-1, torch.multinomial(torch.softmax(x, -1), 3))", ROWS),
    "rrelu": ("self.r = nn.RReLU()", "return self.r(x) * 2", ROWS),
    "attention": (
        "self.q = nn.Linear(32, 96)",
        "q, k, v = (t.view(t.shape[0], -1, 4, 8).transpose(1, 2) for t in self.q(x).chunk(3, -1))\n"
        "        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.2).transpose(1, 2).flatten(2)",
        "torch.randn(2, 11, 32)",
    ),
    "encoder layer": (
        "self.a = nn.TransformerEncoderLayer(32, 4, 48, dropout=0.1, batch_first=True)",
        "return self.a(x)",
        "torch.randn(2, 11, 32)",
    ),
}
SOME = ("dropout", "two dropouts", "dropout of channels last", "initial state", "batch norm and dropout", "rrelu")


def refused(found: Evaluation, *words: str) -> None:
    assert found.status == "wrong_value" and found.fault == "candidate", (found.status, found.message)
    assert any(word in found.message for word in words), found.message


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILY)
def test_a_program_draws_what_the_module_draws(name: str, made: Machine) -> None:
    found = judged(made, task(*FAMILY[name]))
    assert found.passed, (found.status, found.message)


def test_dropout_fuses_into_kernels(made: Machine) -> None:
    found = judged(made, task(*FAMILY["dropout"]))
    assert found.passed, found.message
    assert found.coverage > 0.4


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_so_does_a_plan_of_library_calls(name: str, made: Machine) -> None:
    for given_up in (EVERY_OPERATOR, PLAIN_PLAN):
        found = judged(made, task(*FAMILY[name]), choices={GIVEN_UP: given_up})
        assert found.passed, (given_up, found.message)


# ---------------------------------------------------------------- programs that draw otherwise

SUM = task("", "return x * torch.rand(x.shape[1]) + torch.randn(x.shape[1])", ROWS)
DROPPED = task("", "return torch.tanh(F.dropout(x, 0.25, True))", ROWS)


def test_the_same_draws_pass(made: Machine) -> None:
    both = "    a = torch.rand(x.shape[1])\n    return x * a + torch.randn(x.shape[1])\n"
    assert judged(made, SUM, PLAN + both).passed
    assert judged(made, DROPPED, PLAN + "    return torch.tanh(F.dropout(x, 0.25, True))\n").passed


@pytest.mark.parametrize(
    "body",
    [
        "b = torch.randn(x.shape[1])\n    return x * torch.rand(x.shape[1]) + b",  # in another order
        "torch.rand(1)\n    return x * torch.rand(x.shape[1]) + torch.randn(x.shape[1])",  # after one more number
        "return x * torch.rand(x.shape[1]) + torch.rand(x.shape[1])",  # of another distribution
        "return x * torch.rand(x.shape).mean(0) + torch.randn(x.shape[1])",  # of another shape
        "return x * torch.rand(x.shape[1], dtype=torch.float64).float() + torch.randn(x.shape[1])",  # of another dtype
        "return x * 0.5",  # the mean of what is drawn
    ],
)
def test_other_draws_are_refused(body: str, made: Machine) -> None:
    body = body.replace("torch.rand(1)\n", "c = torch.rand(1)\n")
    refused(judged(made, SUM, f"{PLAN}    {body}\n"), "output", "generator")


@pytest.mark.parametrize(
    "body",
    [
        "return torch.tanh(x)",  # draws nothing
        "return torch.tanh(x * 0.75)",
        "return torch.tanh(x * (torch.rand_like(x) > 0.25) / 0.75)",  # another mask
        "return torch.tanh(F.dropout(x, 0.3, True) * 0.7 / 0.75)",  # another share
        "return torch.tanh(x * torch.ops.aten.native_dropout(x.t().contiguous().t(), 0.25, True)[1] / 0.75)",  # layout
    ],
)
def test_dropout_is_not_imitated(body: str, made: Machine) -> None:
    refused(judged(made, DROPPED, f"{PLAN}    {body}\n"), "output")


def test_a_program_draws_no_further_numbers(made: Machine) -> None:
    """Its values are right, and those of the caller's next operator would not be."""
    more = "y = torch.tanh(F.dropout(x, 0.25, True))\n    more = torch.rand(7)\n    return y + 0.0 * more[:1]"
    refused(judged(made, DROPPED, f"{PLAN}    {more}\n"), "generator")


def test_prepare_may_not_keep_a_draw(made: Machine) -> None:
    kept = (
        "HIP = r''''''\n\n\ndef prepare(self):\n    return {'m': torch.rand(33)}\n\n\n"
        "def forward(self, x):\n    return x * self.prepared.m\n"
    )
    found = judged(made, SUM, kept)
    assert found.status == "parse_error" and "draws random numbers" in found.message


@pytest.mark.parametrize("call", ["torch.manual_seed(3)", "torch.seed()", "torch.rand(3, generator=None)"])
def test_no_other_generator(call: str, made: Machine) -> None:
    found = judged(made, SUM, f"{PLAN}    y = {call}\n    return x\n")
    assert found.status == "parse_error" and "random state" in found.message, found.message


def test_a_task_that_draws_nothing_has_no_draws(made: Machine) -> None:
    plan = f"{PLAN}    return torch.tanh(x) + 0 * torch.rand(33)\n"
    found = judged(made, task("", "return torch.tanh(x)", ROWS), plan)
    assert found.status == "parse_error" and "this task draws none" in found.message


# ---------------------------------------------------------------- what cannot be judged


@pytest.mark.parametrize("call", ["random.random()", "np.random.rand()"])
def test_numbers_of_another_library_are_unscorable(call: str, made: Machine) -> None:
    found = judged(made, task("", f"return x * float({call})", ROWS), f"{PLAN}    return x\n")
    assert (found.status, found.fault) == ("unscorable", "task") and "Python's or NumPy's" in found.message


def test_a_module_that_seeds_itself_is_unscorable(made: Machine) -> None:
    source = task("", "torch.manual_seed(3)\n        return torch.tanh(x) * torch.rand(x.shape[1])", ROWS)
    found = judged(made, source)
    assert (found.status, found.fault) == ("unscorable", "task") and "seeds torch's generator itself" in found.message


def test_a_generator_of_its_own_is_named(made: Machine) -> None:
    setup = "self.g = torch.Generator().manual_seed(3)"
    with pytest.raises(TaskError, match=r"such as a torch\.Generator"):
        judged(made, task(setup, "return x * torch.rand(x.shape[1], generator=self.g)", ROWS))


def test_a_draw_that_nothing_reads_is_named(made: Machine) -> None:
    source = task("", "torch.rand(5)\n        return x * torch.rand(x.shape[1])", ROWS)
    with pytest.raises(TaskError, match=r"torch.rand\(5\).* nothing reads"):
        judged(made, source)


def test_a_draw_that_no_result_depends_on_is_left_out(made: Machine) -> None:
    """As for LayerDrop in evaluation: the number is drawn, and not looked at."""
    source = task("", "torch.rand([])\n        return torch.tanh(x) * 2", ROWS)
    found = judged(made, source)
    assert found.passed and found.coverage == 1.0, found.message


def test_an_unused_result_that_draws_nothing_is_no_matter(made: Machine) -> None:
    """Attention has an argument for dropout, and draws where it is not 0."""
    unused = "F.scaled_dot_product_attention(x[None], x[None], x[None])\n        "
    unused += "F.dropout(x, 0.5, False)\n        return torch.tanh(x)"
    assert judged(made, task("", unused, ROWS)).passed


def test_each_case_has_its_own_seed(made: Machine) -> None:
    with made.open_text("drawn", DROPPED, seed=4, listener=silent) as bench:
        oracle = bench.evaluator.oracle
        name = oracle.first_workload()
        cases = [oracle.case(name, family) for family in oracle.families(name)[:4]]
        assert len({case.draw for case in cases}) == len({case.expected.generator for case in cases}) == 4
        assert oracle.status() is None


@pytest.mark.parametrize("drawn", ["F.dropout(x, 0.5)", "torch.multinomial(x.abs(), 3)"])
def test_a_generator_that_the_forward_seeds_and_puts_back_is_told(made: Machine, drawn: str) -> None:
    body = f"with torch.random.fork_rng([]):\n            torch.manual_seed(3)\n            return {drawn}"
    with pytest.raises(TaskError, match="a generator that the forward seeds and puts back"):
        judged(made, task("", body, ROWS))
