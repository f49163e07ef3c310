"""The four models and their ablations: sizes, what sees what, and the layer against its definition."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from memstore_lib.delta_rule import recurrence
from memstore_lib.language_models import mixers
from memstore_lib.language_models.mixers import AttentionMixer, DeltaMixer
from memstore_lib.language_models.models import ABLATIONS, MODELS, Size, build, parameters

TINY = Size(d_model=12, layers=2, heads=3, vocabulary=29, context=23)
EVERY = [*MODELS, *ABLATIONS]
GDN, SHIFTED_GDN, TRANSFORMER, SHIFTED_TRANSFORMER = MODELS


def tokens(batch=2, T=17, seed=0, vocabulary=29):
    return torch.randint(vocabulary, (batch, T), generator=torch.Generator().manual_seed(seed))


# --- sizes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size", "exact", "source"),
    [
        (GDN, (512, 6, 4), 17_903_920, 17.9e6),
        (SHIFTED_GDN, (512, 6, 4), 14_727_472, 14.7e6),
        (TRANSFORMER, (512, 8, 4), 21_504_512, 21.5e6),
        (SHIFTED_TRANSFORMER, (512, 8, 4), 17_310_208, 17.3e6),
        (GDN, (1024, 9, 8), 105_164_048, 105.2e6),
        (SHIFTED_GDN, (1024, 9, 8), 86_197_520, 86.2e6),
        (GDN, (128, 3, 2), 680_140, 0.680e6),
        (SHIFTED_GDN, (128, 3, 2), 577_996, 0.578e6),
        (TRANSFORMER, (128, 3, 2), 623_488, 0.623e6),
        (SHIFTED_TRANSFORMER, (128, 3, 2), 525_184, 0.525e6),
    ],
)
def test_parameters_at_the_sources_sizes(name, size, exact, source):
    model = build(name, Size(*size), device="meta")
    assert parameters(model) == exact
    assert abs(exact - source) <= (0.05e6 if source > 1e6 else 0.0005e6)


def test_shifting_saves_the_query_and_key_projections():
    for plain, shifted, convolutions in ((GDN, SHIFTED_GDN, 2), (TRANSFORMER, SHIFTED_TRANSFORMER, 0)):
        a, b = (parameters(build(name, TINY, device="meta")) for name in (plain, shifted))
        assert a - b == TINY.layers * (2 * 12 * 12 + convolutions * 12 * 5)


# --- what sees what --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_a_model_sees_only_what_came_before(name):
    model = build(name, TINY, seed=1)
    x = tokens()
    logits = model(x)
    assert logits.shape == (2, 17, 29)
    changed = x.clone()
    changed[:, 9] = (changed[:, 9] + 1) % 29
    moved = (model(changed) - logits).abs().amax(dim=(0, 2))
    assert moved[:9].max() < 1e-6
    assert (moved[9:] > 1e-6).all()


@pytest.mark.parametrize("name", EVERY)
def test_every_parameter_gets_a_gradient(name):
    model = build(name, TINY, seed=1)
    loss = model.loss(tokens())
    assert math.log(29) - 0.3 < loss.item() < math.log(29) + 1.5  # about chance, as nothing is learnt yet
    loss.backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name


def test_the_loss_is_of_each_next_token():
    model, x = build(SHIFTED_GDN, TINY, seed=1), tokens()
    likely = model(x).log_softmax(-1)
    expected = -torch.stack([likely[b, t, x[b, t + 1]] for b in range(2) for t in range(16)]).mean()
    torch.testing.assert_close(model.loss(x), expected)


def test_a_seed_gives_the_same_model_and_another_seed_another():
    a, b, c = (build(GDN, TINY, seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["embedding.weight"], c["embedding.weight"])


def test_decays_start_where_the_source_starts_them():
    mixer = build(GDN, Size(256, 1, 128), seed=0).blocks[0].mixer
    dt, A = functional.softplus(mixer.dt_bias), mixer.A_log.exp()
    assert 1e-3 * 0.999 <= dt.min() < 2e-3
    assert 5e-2 < dt.max() <= 1e-1 * 1.001
    assert 0 < A.min() < 1
    assert 15 < A.max() < 16
    assert dt.log().mean().item() == pytest.approx(math.log(1e-2), abs=0.3)


# --- the layers against their definitions ----------------------------------------------------------


def delta_mixer(**options):
    mixer = DeltaMixer(12, 3, chunk=5, **options)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.normal_(0, 0.5, generator=draw)
    return mixer, torch.randn(2, 17, 12, generator=draw)


def test_the_shifted_layer_follows_its_definition():
    mixer, x = delta_mixer(keys="shifted")
    heads = x.view(2, 17, 3, 4).transpose(1, 2)
    q = functional.normalize(heads, dim=-1)
    k = torch.zeros_like(q)
    k[:, :, 1:] = q[:, :, :-1]
    filtered = functional.pad(mixer.v(x), (0, 0, 3, 0)).transpose(1, 2)
    conv = mixer.convolutions["v"]
    v = functional.silu(functional.conv1d(filtered, conv.weight[:, None], conv.bias, groups=12)).transpose(1, 2)
    v = v.reshape(2, 17, 3, 4).transpose(1, 2)
    beta = torch.sigmoid(x @ mixer.b.weight.T).transpose(1, 2)
    g = -(mixer.A_log.exp() * functional.softplus(x @ mixer.a.weight.T + mixer.dt_bias)).transpose(1, 2)
    o, _ = recurrence(q / 2, k, v, beta, g)
    o = o / (o.square().mean(-1, keepdim=True) + 1e-6).sqrt() * mixer.norm.weight
    o = o.transpose(1, 2).reshape(2, 17, 12) * functional.silu(x @ mixer.gate.weight.T)
    torch.testing.assert_close(mixer(x), o @ mixer.out.weight.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ("projected", {"q", "k", "v"}),
        ("shifted", {"v"}),
        ("unshifted", {"v"}),
        ("shifted query", {"q", "v"}),
    ],
)
def test_where_queries_and_keys_come_from(keys, names):
    mixer, x = delta_mixer(keys=keys)
    assert set(mixer.convolutions) == names
    assert {name for name in "qkv" if getattr(mixer, name) is not None} == names
    q, k = mixer.unit_queries_and_keys(x)
    torch.testing.assert_close(q.norm(dim=-1), torch.ones(2, 3, 17))
    if keys.startswith("shifted"):
        assert k[:, :, 0].abs().max() == 0
        torch.testing.assert_close(k[:, :, 1:], q[:, :, :-1])
    else:
        torch.testing.assert_close(k, q) if keys == "unshifted" else None
        torch.testing.assert_close(k.norm(dim=-1), torch.ones(2, 3, 17))


def test_rotation_leaves_products_to_the_distance_alone():
    table = mixers.rotary_table(23, 6)
    draw = torch.Generator().manual_seed(2)
    q, k = torch.randn(2, 1, 6, generator=draw).expand(2, 23, 6)
    products = mixers.rotate(q, table) @ mixers.rotate(k, table).T
    torch.testing.assert_close(products[3:, 3:], products[:-3, :-3])
    assert not torch.allclose(products[0, 0], products[3, 0])
    torch.testing.assert_close(products.diagonal(), (q * k).sum(-1))


def test_without_rotary_positions_a_repeated_token_tells_no_time():
    x = torch.full((1, 9), 5)
    flat = build("transformer, no rotary positions", TINY, seed=0)(x)
    torch.testing.assert_close(flat, flat[:, :1].expand_as(flat))


# --- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: Size(13, 2, 3), ValueError, "d_model must be a multiple of heads, got d_model 13 and 3 heads"),
        (lambda: Size(12, 0, 3), ValueError, "layers must be at least 1, got 0"),
        (lambda: Size(12, 2, 3, vocabulary=2.5), TypeError, "vocabulary must be an integer, got 2.5"),
        (lambda: AttentionMixer(9, 3, 8), ValueError, "d_model / heads must be even for rotary positions, got 9 / 3"),
        (lambda: DeltaMixer(12, 3, chunk=0), ValueError, "chunk must be at least 1, got 0"),
        (lambda: DeltaMixer(12, 3, keys="past"), ValueError, "keys must be one of 'projected', .*, got 'past'"),
        (lambda: build("RNN", TINY, seed=0), ValueError, "name must be one of 'Gated DeltaNet', .*, got 'RNN'"),
        (lambda: build(GDN, TINY), ValueError, "seed must be given"),
        (lambda: build(GDN, TINY, seed=-1), ValueError, "seed must be at least 0, got -1"),
    ],
)
def test_bad_sizes_are_refused(make, kind, words):
    with pytest.raises(kind, match=words):
        make()


@pytest.mark.parametrize(
    ("x", "kind", "words"),
    [
        (torch.tensor([[1, 29]]), ValueError, r"tokens must lie in \[0, 29\), the vocabulary, got 29"),
        (torch.tensor([[-1, 2]]), ValueError, r"tokens must lie in \[0, 29\), the vocabulary, got -1"),
        (torch.tensor([1, 2]), ValueError, r"tokens must have shape \(batch, T\) .* got \(2,\)"),
        (torch.zeros(2, 0, dtype=torch.int64), ValueError, "tokens must have shape"),
        (torch.zeros(1, 24, dtype=torch.int64), ValueError, "at most 23 positions, the rows of the rotary table"),
        (torch.zeros(1, 3), TypeError, "tokens must be a tensor of int64 or int32, got torch.float32"),
        ([[1]], TypeError, "tokens must be a tensor of int64 or int32, got list"),
    ],
)
def test_bad_tokens_are_refused(x, kind, words):
    with pytest.raises(kind, match=words):
        build(TRANSFORMER, TINY, seed=0)(x)


def test_a_delta_rule_has_no_longest_sequence():
    assert build(SHIFTED_GDN, TINY, seed=0)(tokens(T=40)).shape == (2, 40, 29)
