"""C names of buffers: identifiers, short ones for parameters deep in a network."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from hipwright.engine.emit.builder import LONGEST, cname


@given(st.lists(st.from_regex(r"[a-zA-Z][a-z0-9]{0,9}|[0-9]{1,3}", fullmatch=True), min_size=1, max_size=9))
def test_a_name_of_many_words_is_a_short_identifier(words: list[str]) -> None:
    name = cname("p_net_" + "_".join(words) + "_weight")
    assert re.fullmatch(r"[A-Za-z_]\w*", name) and len(name) <= LONGEST + 1


def test_the_last_words_are_kept() -> None:
    assert cname("p_net_features_4_0_block_0_1_running_mean") == "running_mean"
    assert cname("p_net_features_denseblock4_denselayer27_norm1_bias") == "norm1_bias"
    assert cname("p_norm_weight") == "norm_weight"
