"""Tokenizer, model and form of the miniature."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hipwright.llm.answers.repair import UnusableAnswer
from hipwright.llm.checkpoint import load as load_local
from hipwright.llm.compact import expand, prompt
from hipwright.records import Program
from hipwright.train.mini import corpus, model
from hipwright.train.mini.form import CompactForm, read
from hipwright.train.records import AnswerOutcome, Turn

LIMIT_MB = 15


@pytest.fixture(scope="module")
def lines(corpus_folder: Path) -> tuple[corpus.CorpusLine, ...]:
    return corpus.load(corpus_folder).lines


@pytest.fixture(scope="module")
def words(lines: tuple[corpus.CorpusLine, ...]) -> Any:
    texts = [text for line in lines for text in (prompt(line.problem.source), *line.programs)]
    return model.train_tokenizer(texts, model.ModelShape().vocabulary)


@pytest.fixture(scope="module")
def form(words: Any) -> CompactForm:
    return CompactForm(words)


def test_tokens_decode_to_the_text(words: Any) -> None:
    for text in ("x f32 1024 1000\n", "é\x00\n\n  x", "BLOCK = 512\nfoo", "a = b[1234]\n"):
        tokens = words.encode(text, add_special_tokens=False)
        assert words.decode(tokens, clean_up_tokenization_spaces=False) == text


def test_a_size_has_the_same_tokens_in_prompt_and_program(words: Any) -> None:
    def tokens(text: str) -> list[int]:
        return list(words.encode(text, add_special_tokens=False))

    for size in ("1536", "24576", "900", "50000", "131072"):
        own = tokens(size)
        for text in (f"x f32 {size} 64\n", f"    assert x.shape[0] == {size}\n", f"    if (i >= {size}) return;\n"):
            found = tokens(text)
            assert any(found[at : at + len(own)] == own for at in range(len(found))), text


def test_programs_are_short_in_tokens(form: CompactForm, lines: tuple[corpus.CorpusLine, ...]) -> None:
    for line in lines:
        sizes = [len(form.target(line.problem, text)) for text in line.programs]
        assert sum(sizes) / len(sizes) < (200 if line.problem.facts["family"] == "pointwise" else 450)


def test_form_encodes_decodes_and_imitates(form: CompactForm, lines: tuple[corpus.CorpusLine, ...]) -> None:
    line = lines[0]
    target = form.target(line.problem, line.programs[0])
    assert target[-1] == form.tokenizer.eos_token_id
    assert form.decode(target) == line.programs[0]
    assert form.target(line.problem, expand(line.programs[0])) == target
    assert form.targets(line.programs)[0] == target
    assert form.tokenizer.decode(form.encode(line.problem)) == prompt(line.problem.source) + model.ANSWER


def test_a_repair_turn_shows_the_answer_its_status_and_the_first_evidence(
    form: CompactForm, lines: tuple[corpus.CorpusLine, ...]
) -> None:
    outcome = AnswerOutcome(status="wrong_value", evidence="off by 3 at [0, 1]\nand more")
    turn = Turn(completion="BLOCK = 64\n", outcome=outcome)
    text = form.text(lines[0].problem, [turn])
    assert text == prompt(lines[0].problem.source) + "BLOCK = 64\nwrong_value off by 3 at [0, 1]\n"


def test_read_expands_short_programs_and_refuses_others(lines: tuple[corpus.CorpusLine, ...]) -> None:
    found = read(lines[0].programs[0], lines[0].problem)
    assert isinstance(found, Program)
    assert "#include" in found.text
    refused = read(lines[0].programs[0].replace("def forward", "def backwards"), lines[0].problem)
    assert isinstance(refused, UnusableAnswer)
    assert "backwards" in refused.message


def test_the_model_fits_its_limit(words: Any) -> None:
    made = model.random_model(words, model.ModelShape(), 0)
    count = sum(one.numel() for one in made.parameters())
    assert 6_000_000 < count < LIMIT_MB * 1e6 / 2


def test_the_large_model_has_85_to_110_million_parameters(words: Any) -> None:
    with torch.device("meta"):
        made = model.random_model(words, model.LARGE, 0)
    assert 85_000_000 < sum(one.numel() for one in made.parameters()) < 110_000_000


def test_a_checkpoint_is_a_local_model_of_the_agents(
    words: Any, form: CompactForm, lines: tuple[corpus.CorpusLine, ...], tmp_path: Path
) -> None:
    made = model.random_model(words, model.TINY, 0)
    model.save(made, words, tmp_path, {"arm": "base"})
    again, _ = model.load(tmp_path)
    assert all((a - b).abs().max() < 0.01 for a, b in zip(made.parameters(), again.parameters(), strict=True))
    local = load_local(tmp_path)
    assert (local.form, local.context) == ("compact", model.TINY.context)
    asked = [{"role": "user", "content": prompt(lines[0].problem.source)}]
    assert local.encode(asked) == form.encode(lines[0].problem)


def test_equal_seeds_give_equal_weights(words: Any) -> None:
    one, same, other = (model.random_model(words, model.TINY, seed).lm_head.weight for seed in (1, 1, 2))
    assert bool((one == same).all())
    assert not bool((one == other).all())
