"""HFPolicy: sampling and likelihood agree, and do not depend on padding and packing."""

from __future__ import annotations

import pytest
import torch

from hipwright.errors import BadInput
from hipwright.train.rl.decode import Decoder
from hipwright.train.rl.policy import HFPolicy
from tests.train.rl.tools import tiny_model

PROMPTS = [[5, 6, 7], [9] * 40 + [3, 4], [8], list(range(2, 30))]
END = 1


@pytest.fixture
def policy() -> HFPolicy:
    return HFPolicy(tiny_model(), end=[END], device="cpu")


def sample(policy: HFPolicy, prompts: list[list[int]], seed: int = 3, samples: int = 3, temperature: float = 0.8):
    return policy.generate(prompts, samples=samples, max_new_tokens=40, temperature=temperature, seed=seed)


def test_sampling_log_probs_are_the_likelihood(policy: HFPolicy) -> None:
    groups = sample(policy, PROMPTS)
    pairs = [(prompt, one.tokens) for prompt, group in zip(PROMPTS, groups, strict=True) for one in group]
    found = policy.logprobs(pairs, temperature=0.8, micro_tokens=256)
    said = [one.logprobs for group in groups for one in group]
    assert max(abs(a - b) for x, y in zip(found, said, strict=True) for a, b in zip(x, y, strict=True)) < 1e-4


def test_likelihood_is_that_of_transformers_alone(policy: HFPolicy) -> None:
    prompt, completion = PROMPTS[3], [4, 9, 33, 1]
    with torch.no_grad():
        table = policy.model(torch.tensor([prompt + completion])).logits[0].log_softmax(-1)
    expected = [table[len(prompt) - 1 + i, token].item() for i, token in enumerate(completion)]
    packed = policy.logprobs([(PROMPTS[0], [7, 7]), (prompt, completion), (PROMPTS[2], [5])])[1]
    assert packed == pytest.approx(expected, abs=1e-5)


def test_many_sequences_keep_their_order(policy: HFPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(PROMPTS[i % 4], [2 + i, 9, 1 + i % 3]) for i in range(7)]
    whole = policy.logprobs(pairs)
    monkeypatch.setattr("hipwright.train.rl.policy.MAX_PACKED", 3)
    for one, other in zip(policy.logprobs(pairs), whole, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


def test_padding_on_the_left_changes_nothing(policy: HFPolicy) -> None:
    together = policy.generate(PROMPTS, samples=1, max_new_tokens=24, temperature=0, seed=0)
    for prompt, group in zip(PROMPTS, together, strict=True):
        alone = policy.generate([prompt], samples=1, max_new_tokens=24, temperature=0, seed=9)[0][0]
        assert alone.tokens == group[0].tokens
        assert alone.logprobs == pytest.approx(group[0].logprobs, abs=1e-5)


def test_greedy_sampling_is_what_transformers_generates(policy: HFPolicy) -> None:
    prompt = torch.tensor([PROMPTS[3]])
    kept = policy.model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=False,
        max_new_tokens=24,
        eos_token_id=END,
        pad_token_id=0,
    )
    ours = policy.generate([PROMPTS[3]], samples=1, max_new_tokens=24, temperature=0, seed=0)[0][0]
    assert ours.tokens == kept[0, prompt.shape[1] :].tolist()


def test_seeds(policy: HFPolicy) -> None:
    assert sample(policy, PROMPTS) == sample(policy, PROMPTS)
    assert sample(policy, PROMPTS) != sample(policy, PROMPTS, seed=4)


def test_samples_follow_the_distribution(policy: HFPolicy) -> None:
    with torch.no_grad():
        p = (policy.model(torch.tensor([PROMPTS[0]])).logits[0, -1] / 0.8).softmax(-1)
    groups = policy.generate([PROMPTS[0]] * 8, samples=500, max_new_tokens=1, temperature=0.8, seed=1)
    counts = torch.bincount(torch.tensor([one.tokens[0] for group in groups for one in group]), minlength=64)
    chi = ((counts - 4000 * p) ** 2 / (4000 * p)).sum().item()
    assert chi < 63 + 5 * (2 * 63) ** 0.5  # five standard deviations of chi-squared


def test_an_answer_stops_at_its_end_token(policy: HFPolicy) -> None:
    for group in sample(policy, PROMPTS, samples=16):
        for one in group:
            assert one.ended == (one.tokens[-1] == END)
            assert END not in one.tokens[:-1] and (one.ended or len(one.tokens) == 40)
            assert len(one.logprobs) == len(one.tokens)


def test_a_new_shape_after_a_change_of_weights_is_right(policy: HFPolicy) -> None:
    before = sample(policy, PROMPTS)
    state = policy.state()
    with torch.no_grad():
        for one in policy.trainable_parameters():
            one.mul_(1.1)
    assert sample(policy, PROMPTS) != before
    policy.load(state)
    assert sample(policy, PROMPTS) == before


@pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*")  # peft reads a renamed attribute
def test_lora_trains_the_adapter_alone(tmp_path) -> None:
    from hipwright.train.rl.policy import with_lora

    policy = HFPolicy(with_lora(tiny_model(), 4), end=[END], device="cpu")
    assert all("lora" in name for name in policy.state()) and policy.state()
    groups = sample(policy, PROMPTS[:2])
    found = policy.logprobs([(PROMPTS[0], groups[0][0].tokens)], temperature=0.8)[0]
    assert found == pytest.approx(groups[0][0].logprobs, abs=1e-4)
    policy.save(tmp_path)
    assert (tmp_path / "adapter_model.safetensors").is_file()


def test_a_step_uses_the_same_memory_every_time(policy: HFPolicy) -> None:
    """A captured graph needs the decoder's tensors to keep their addresses."""

    def places() -> list[int]:
        (decoder,) = policy._decoders.values()
        own = [value for value in vars(decoder).values() if isinstance(value, torch.Tensor)]
        kept = [one for pair in decoder.cache.kept.values() for one in pair]
        return [one.data_ptr() for one in (*own, *kept, decoder.cache.at, *policy.trainable_parameters())]

    first = sample(policy, PROMPTS)
    before = places()
    sample(policy, [[3] * 50, [4], [5], [6]], seed=8, temperature=0.0)
    optimizer = torch.optim.SGD(policy.trainable_parameters(), lr=0.0)
    sum(one.sum() for one in policy.trainable_parameters()).backward()
    optimizer.step()
    policy.load(policy.state())
    assert sample(policy, PROMPTS) == first  # calls in between have no effect
    assert places() == before and len(before) > 20


def cache_bytes(decoder: Decoder) -> int:
    return sum(one.nbytes for pair in decoder.cache.kept.values() for one in pair)


def test_keys_and_values_of_all_decoders_stay_within_their_limit(
    policy: HFPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sample(policy, PROMPTS, samples=1, temperature=0.0)
    ((key, decoder),) = policy._decoders.items()
    assert policy._cache_bytes(*key) == cache_bytes(decoder)
    limit = 3 * policy._cache_bytes(1, *key[1:])
    monkeypatch.setattr("hipwright.train.rl.policy.MAX_CACHE_BYTES", limit)
    for one, other in zip(sample(policy, PROMPTS, samples=1, temperature=0.0), whole, strict=True):
        assert one[0].tokens == other[0].tokens
    assert [key[0] for key in policy._decoders] == [1], "three answers at once fill the limit"
    assert not decoder.cache.kept, "a decoder that is no longer kept holds no memory"
    sample(policy, [[5]] * 2, samples=1)
    assert len(policy._decoders) == 2
    assert sum(map(cache_bytes, policy._decoders.values())) <= limit


def test_a_released_policy_holds_no_decoder_and_samples_as_before(policy: HFPolicy) -> None:
    before = sample(policy, PROMPTS)
    (decoder,) = policy._decoders.values()
    policy.release()
    assert not policy._decoders and not decoder.cache.kept
    assert sample(policy, PROMPTS) == before


def test_a_captured_step_is_replayed(policy: HFPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for CUDA's graph: the warm-up has no effect, and each token is one replay."""
    plain = sample(policy, PROMPTS)
    replays: list[int] = []

    class Graph:
        def __init__(self, decoder: Decoder) -> None:
            self.decoder = decoder

        def replay(self) -> None:
            replays.append(1)
            self.decoder._step()

    def capture(decoder: Decoder) -> None:
        decoder._step()
        decoder._step()
        decoder.graph = Graph(decoder)

    monkeypatch.setattr(Decoder, "_capture", capture)
    policy.graphs = True
    policy._decoders.clear()
    assert sample(policy, PROMPTS) == plain and sample(policy, PROMPTS) == plain
    assert 0 < len(replays) <= 2 * 40


def test_mixed_precision_samples_and_scores_alike(policy: HFPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the processor's autocast, as on CUDA: for example keys in float32 and values in bfloat16."""
    plain = sample(policy, PROMPTS)
    monkeypatch.setattr(
        HFPolicy, "_precision", lambda self, cached=True: torch.autocast("cpu", torch.bfloat16, cache_enabled=cached)
    )
    policy._decoders.clear()
    groups = sample(policy, PROMPTS)
    (decoder,) = policy._decoders.values()
    assert {one.dtype for pair in decoder.cache.kept.values() for one in pair} == {torch.bfloat16}
    assert decoder.logits.dtype == torch.float32
    pairs = [(prompt, one.tokens) for prompt, group in zip(PROMPTS, groups, strict=True) for one in group]
    found = policy.logprobs(pairs, temperature=0.8)
    said = [one.logprobs for group in groups for one in group]
    gaps = [abs(a - b) for x, y in zip(found, said, strict=True) for a, b in zip(x, y, strict=True)]
    assert max(gaps) < 0.1 and sum(gaps) / len(gaps) < 0.01
    assert groups != plain  # the precision differs from float32
    loss = sum(-part.logprobs.sum() for part in policy.likelihood(pairs, micro_tokens=512))
    loss.backward()
    assert all(one.grad is not None and one.grad.dtype == torch.float32 for one in policy.trainable_parameters())


def test_another_attention_is_replaced(policy: HFPolicy) -> None:
    other = tiny_model()
    other.set_attn_implementation("eager")
    pairs = [(PROMPTS[0], [7, 7]), (PROMPTS[3], [4, 9])]
    assert HFPolicy(other, end=[END], device="cpu").logprobs(pairs) == policy.logprobs(pairs)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("final_logit_softcapping", 30.0, "soft cap"), ("layer_types", ["sliding_attention"] * 2, "sliding_attention")],
)
def test_unsupported_models_are_refused(field: str, value: object, said: str) -> None:
    model = tiny_model()
    setattr(model.config, field, value)
    with pytest.raises(BadInput, match=said):
        HFPolicy(model, end=[END], device="cpu")
