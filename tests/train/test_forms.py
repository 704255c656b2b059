"""ChatForm: the prompts of the data set, contexts and repair turns."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.dataset.export.chat import user_prompt
from hipwright.dataset.records import Pair
from hipwright.llm.answers.read import read_answer
from hipwright.llm.answers.repair import UnusableAnswer
from hipwright.records import Program
from hipwright.train.forms import ChatForm
from hipwright.train.records import AnswerOutcome, TrainingProblem, Turn

PROBLEM = TrainingProblem(name="double", source="class Model: pass  # x * 2\n")
PROGRAM = """HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.f * x[i];
}
'''

def forward(self, x):
    y = torch.empty_like(x)
    twice[cdiv(x.numel(), 256), 256](x, y, x.numel())
    return y
"""
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """A tokenizer of bytes with the two special tokens of a chat."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={sign: place for place, sign in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>", chat_template=TEMPLATE)


def test_the_prompt_equals_that_of_the_data_set(tokenizer: Any) -> None:
    form = ChatForm(tokenizer)
    system, user = form.messages(PROBLEM)
    pair = Pair(
        task="t",
        task_name="t",
        task_source=PROBLEM.source,
        program=Program(text=""),
        kind="engine",
        correct=True,
        status="pass",
    )
    assert user["content"] == user_prompt(pair)
    assert "gfx942" in system["content"] and "64 lanes" in system["content"]
    text = tokenizer.decode(form.encode(PROBLEM))
    assert text.startswith("<|im_start|>system") and text.endswith("<|im_start|>assistant\n")


def test_the_context_precedes_the_end_of_the_prompt(tokenizer: Any) -> None:
    text = ChatForm(tokenizer).messages(PROBLEM, (), "## Lessons\n- be kind")[1]["content"]
    assert text.index("x * 2") < text.index("be kind") < text.index("Other shapes")


def test_a_repair_shows_the_answer_and_what_was_found(tokenizer: Any) -> None:
    outcome = AnswerOutcome(status="wrong_value", message="short", evidence="- element 7 is 3, 4 is right")
    asked = ChatForm(tokenizer).messages(PROBLEM, [Turn(completion="MY ANSWER", outcome=outcome)])
    assert [one["role"] for one in asked] == ["system", "user", "assistant", "user"]
    assert asked[2]["content"] == "MY ANSWER" and "element 7 is 3" in asked[3]["content"]
    bare = Turn(completion="x", outcome=AnswerOutcome(status="timeout"))
    assert "timeout" in ChatForm(tokenizer).messages(PROBLEM, [bare])[3]["content"]


def test_a_target_is_read_back_as_the_program(tokenizer: Any) -> None:
    form = ChatForm(tokenizer)
    target = form.target(PROBLEM, PROGRAM)
    assert target[-1] == tokenizer.eos_token_id
    found = read_answer(form.decode(target))
    assert not isinstance(found, UnusableAnswer) and found.program.text.strip() == PROGRAM.strip()


def test_the_system_prompt_depends_on_the_targets(tokenizer: Any) -> None:
    both, amd = ChatForm(tokenizer, ("gfx942", "cuda")).system, ChatForm(tokenizer).system
    assert "32 on the others" in both and "32 on the others" not in amd
