"""Measures of keys: of keys whose answers are known, and of the models' own."""

from __future__ import annotations

import math

import pytest
import torch

from memstore_lib.language_models import key_quality
from memstore_lib.language_models.key_quality import keys_of, measure, of_keys
from memstore_lib.language_models.models import MODELS, Size, build

TINY = Size(d_model=12, layers=2, heads=3, vocabulary=29, context=23)
GDN, SHIFTED_GDN, TRANSFORMER, _ = MODELS


def tokens(T=17):
    return torch.randint(29, (2, T), generator=torch.Generator().manual_seed(0))


def test_orthonormal_keys_use_all_of_their_space():
    found = of_keys(torch.eye(7))
    assert found == pytest.approx(
        {"rank_above_1_percent": 7, "rank_entropy": 7, "mean_abs_cosine": 0, "condition": 1}, abs=1e-9
    )


def test_equal_keys_use_one_direction():
    found = of_keys(torch.tensor([[0.6, -0.8, 0.0]]).repeat(5, 1) * torch.tensor([[1.0], [-1], [1], [1], [-1]]))
    assert found == pytest.approx(
        {"rank_above_1_percent": 1, "rank_entropy": 1, "mean_abs_cosine": 1, "condition": math.inf}, abs=1e-6
    )


def test_known_singular_values():
    sizes = torch.tensor([8.0, 4.0, 2.0, 0.07])
    found = of_keys(torch.diag(sizes))
    shares = sizes / sizes.sum()
    assert found["rank_above_1_percent"] == 3
    assert found["rank_entropy"] == pytest.approx(math.exp(-(shares * shares.log()).sum()))
    assert found["condition"] == pytest.approx(8 / 0.07)


def test_a_cosine_in_numbers():
    keys = torch.tensor([[1.0, 0.0], [-3.0, 0.0], [0.5, math.sqrt(0.75)]])
    assert of_keys(keys)["mean_abs_cosine"] == pytest.approx((1 + 0.5 + 0.5) / 3)


def test_a_zero_key_counts_in_no_pair_and_in_no_singular_value():
    keys = torch.randn(9, 4, generator=torch.Generator().manual_seed(1))
    padded = torch.cat([torch.zeros(1, 4), keys])
    assert of_keys(padded) == pytest.approx(of_keys(keys))


def test_a_zero_key_makes_a_short_sequence_singular():
    keys = torch.eye(5)[:3]
    assert of_keys(keys)["condition"] == pytest.approx(1)
    assert of_keys(torch.cat([torch.zeros(1, 5), keys]))["condition"] == math.inf


def test_random_keys_have_the_cosine_of_chance():
    keys = torch.randn(800, 64, generator=torch.Generator().manual_seed(1))
    assert of_keys(keys)["mean_abs_cosine"] == pytest.approx(math.sqrt(2 / (math.pi * 64)), rel=0.01)


@pytest.mark.parametrize("name", [GDN, SHIFTED_GDN])
def test_a_table_has_a_row_for_each_layer_head_and_sequence(name):
    model = build(name, TINY, seed=0)
    table = measure(model, tokens())
    assert len(table) == 2 * 3 * 2 * 2
    assert list(table) == [
        "layer",
        "head",
        "sequence",
        "first",
        "rank_above_1_percent",
        "rank_entropy",
        "mean_abs_cosine",
        "condition",
    ]
    keys = keys_of(model, tokens())
    assert [tuple(k.shape) for k in keys] == [(2, 3, 17, 4)] * 2
    row = table[(table.layer == 1) & (table["head"] == 2) & (table.sequence == 1) & (table["first"] == "without")]
    assert row.iloc[0, 4:].to_dict() == pytest.approx(of_keys(keys[1][1, 2, 1:]))
    assert (keys[0][:, :, 0].abs().max() == 0) == (name == SHIFTED_GDN)


def test_layer_0_of_a_shifted_model_writes_with_the_embedding_of_the_token_before():
    model, x = build(SHIFTED_GDN, TINY, seed=0), tokens()
    rows = model.blocks[0].mixer_norm(model.embedding(x)).view(2, 17, 3, 4).transpose(1, 2)
    torch.testing.assert_close(keys_of(model, x)[0][:, :, 1:], torch.nn.functional.normalize(rows, dim=-1)[:, :, :-1])


def test_looking_leaves_no_hook_behind():
    model = build(GDN, TINY, seed=0)
    with pytest.raises(ValueError, match="tokens must lie in"):
        keys_of(model, tokens() + 29)
    keys_of(model, tokens())
    assert not any(block.mixer._forward_pre_hooks for block in model.blocks)


@pytest.mark.parametrize(
    ("keys", "kind", "words"),
    [
        (torch.ones(1, 3), ValueError, r"at least two rows, got shape \(1, 3\)"),
        (torch.zeros(4, 3), ValueError, "keys must not all be zero"),
        (torch.ones(2, 3, 4), ValueError, r"keys must have shape \(T, d_k\), got \(2, 3, 4\)"),
        (torch.full((3, 2), math.nan), ValueError, "keys must be finite"),
        ([[1.0]], TypeError, "keys must be a torch.Tensor"),
    ],
)
def test_bad_keys_are_refused(keys, kind, words):
    with pytest.raises(kind, match=words):
        of_keys(keys)


def test_a_model_without_memories_and_short_text_are_refused():
    with pytest.raises(TypeError, match="model must have mixers of the delta rule, got AttentionMixer"):
        measure(build(TRANSFORMER, TINY, seed=0), tokens())
    with pytest.raises(ValueError, match=r"T at least 3, got \(2, 2\)"):
        key_quality.measure(build(GDN, TINY, seed=0), tokens(T=2))
