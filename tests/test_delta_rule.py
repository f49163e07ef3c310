"""The gated delta rule: the chunked form against the recurrence, and the stores that it has as special cases."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memstore_lib import memories
from memstore_lib.delta_rule import _unit_lower_inverse, chunked, recurrence
from memstore_lib.stores import LeastSquares, OuterProduct

PROPERTY = settings(max_examples=25, deadline=None, derandomize=True)
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}
SIZES = {"batch": 2, "heads": 3, "T": 11, "d_k": 5, "d_v": 7}
seeds = st.integers(0, 2**32 - 1)


def inputs(seed=0, *, batch=2, heads=3, T=11, d_k=5, d_v=7, dtype=torch.float64, decay="any", beta="any", keys="any"):
    """Unit keys, and values, β and decay of the kind asked for; each case names what a careless form gets wrong."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    q, k, v = normal(batch, heads, T, d_k), normal(batch, heads, T, d_k), normal(batch, heads, T, d_v)
    k = k / k.norm(dim=-1, keepdim=True)
    if keys == "repeated":
        k = k[:, :, :1].expand_as(k).clone()
    if keys == "zero":
        k[:, :, ::2] = 0
    g = {
        "any": -normal(batch, heads, T).exp(),
        "near 1": -1e-6 * normal(batch, heads, T).abs(),
        "near 0": -400 * torch.rand(batch, heads, T, generator=draw, dtype=torch.float64),
        "off": torch.zeros(batch, heads, T, dtype=torch.float64),
        # Decays of 1e-4 a step after a sum of thousands: a running sum in float32 has no digits left for them.
        "sudden": torch.where(torch.arange(T) < T // 2, -1e4, -1e-4).expand(batch, heads, T).double().clone(),
    }[decay]
    b = {"any": normal(batch, heads, T).sigmoid(), 0: torch.zeros(batch, heads, T), 1: torch.ones(batch, heads, T)}[
        beta
    ]
    S = normal(batch, heads, d_k, d_v)
    return [x.to(dtype) for x in (q, k, v, b, g, S)]


def results(form, tensors, *, seed=0, **options):
    """Outputs, final state and the gradients of a random sum of them with respect to all inputs."""
    leaves = [x.clone().requires_grad_() for x in tensors]
    o, S = form(*leaves, **options)
    draw = torch.Generator().manual_seed(seed + 1)
    loss = sum((x * torch.randn(x.shape, generator=draw, dtype=torch.float64).to(x.dtype)).sum() for x in (o, S))
    return [o, S, *torch.autograd.grad(loss, leaves)]


def assert_equal(tensors, tolerance, **options):
    chunk = options.pop("chunk")
    ours, plain = results(chunked, tensors, chunk=chunk, **options), results(recurrence, tensors, **options)
    for name, a, b in zip(("o", "S", "dq", "dk", "dv", "dbeta", "dg", "dS"), ours, plain, strict=True):
        assert a.shape == b.shape, name
        assert a.dtype == b.dtype, name
        scale = 1 + b.detach().abs().max()
        assert ((a - b).abs().max() / scale).item() < tolerance, name


@given(
    seed=seeds,
    T=st.integers(1, 40),
    chunk=st.integers(1, 50),
    heads=st.integers(1, 4),
    d_k=st.integers(1, 9),
    d_v=st.integers(1, 9),
    write=st.sampled_from(["delta", "hebb"]),
)
@PROPERTY
def test_the_chunked_form_equals_the_recurrence(seed, T, chunk, heads, d_k, d_v, write):
    tensors = inputs(seed, T=T, heads=heads, d_k=d_k, d_v=d_v)
    assert_equal(tensors, TOLERANCE[torch.float64], chunk=chunk, write=write)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("keys", ["any", "repeated", "zero"])
@pytest.mark.parametrize("decay", ["any", "near 1", "near 0", "off", "sudden"])
@pytest.mark.parametrize("beta", ["any", 0, 1])
@pytest.mark.parametrize("write", ["delta", "hebb"])
def test_it_does_so_at_the_ends_of_every_range(dtype, keys, decay, beta, write):
    tensors = inputs(3, T=67, keys=keys, decay=decay, beta=beta, dtype=dtype)
    assert_equal(tensors, TOLERANCE[dtype], chunk=64, write=write)


def test_single_precision_holds_over_a_long_sequence():
    tensors = inputs(5, T=521, d_k=32, d_v=17, decay="near 1", dtype=torch.float32)
    assert_equal(tensors, TOLERANCE[torch.float32], chunk=64)


def test_gradients_agree_with_finite_differences():
    leaves = [x.requires_grad_() for x in inputs(1, batch=1, heads=2, T=5, d_k=3, d_v=2)]
    leaves[4].data.clamp_(max=-0.01)  # finite differences must not step above 0
    assert torch.autograd.gradcheck(lambda *x: chunked(*x, chunk=3), leaves)


@pytest.mark.parametrize("form", [recurrence, chunked])
def test_a_sequence_may_be_cut_anywhere(form):
    q, k, v, beta, g, S = inputs(2)
    whole, end = form(q, k, v, beta, g, S)
    first, middle = form(*(x[:, :, :4] for x in (q, k, v, beta, g)), S)
    second, last = form(*(x[:, :, 4:] for x in (q, k, v, beta, g)), middle)
    torch.testing.assert_close(torch.cat([first, second], dim=2), whole)
    torch.testing.assert_close(last, end)


@pytest.mark.parametrize("form", [recurrence, chunked])
def test_nothing_is_known_before_it_came(form):
    q, k, v, beta, g, _ = inputs(2)
    before, _ = form(q, k, v, beta, g)
    k[:, :, 6:], v[:, :, 6:], g[:, :, 6:], beta[:, :, 6:] = 0.5, 9.0, -3.0, 0.3
    after, _ = form(q, k, v, beta, g)
    torch.testing.assert_close(after[:, :, :6], before[:, :, :6])
    assert not torch.allclose(after[:, :, 6:], before[:, :, 6:])


@pytest.mark.parametrize("form", [recurrence, chunked])
def test_one_step_by_hand(form):
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    q, k = torch.tensor([2.0, 1.0]).double().view(1, 1, 1, 2), torch.tensor([0.6, 0.8]).double().view(1, 1, 1, 2)
    v, S = torch.tensor([[[[10.0]]]]).double(), torch.tensor([1.0, 2.0]).double().view(1, 1, 2, 1)
    o, new = form(q, k, v, 0.5 * one, math.log(0.5) * one, S)
    # Halved: (0.5, 1), which recalls 1.1 for k; half of the missing 8.9 is written.
    torch.testing.assert_close(new.flatten(), torch.tensor([0.5 + 0.6 * 4.45, 1 + 0.8 * 4.45]).double())
    torch.testing.assert_close(o.flatten()[0], 2 * new.flatten()[0] + new.flatten()[1])


# --- the rows of the family ------------------------------------------------------------------------


def memories_of(M=17, d_k=13, d_v=11):
    draw = memories.replicate_generator(4, 0)
    keys = memories.unit_keys(M, d_k, generator=draw, device="cpu").double()
    values = memories.values(M, d_v, generator=draw, device="cpu").double()
    keys = keys / keys.norm(dim=1, keepdim=True)
    return keys, values


@pytest.mark.parametrize("form", [recurrence, chunked])
def test_hebb_without_decay_is_the_store_of_chapter_1(form):
    keys, values = memories_of()
    store = OuterProduct().write(keys, values)
    one = torch.ones(1, 1, len(keys), dtype=torch.float64)
    o, S = form(keys[None, None], keys[None, None], values[None, None], one, 0 * one, write="hebb")
    torch.testing.assert_close(S[0, 0].T, store.W)
    torch.testing.assert_close(o[0, 0, -1], store.recall(keys[-1]))


def test_hebb_with_decay_forgets_by_its_age():
    keys, values = memories_of()
    one = torch.ones(1, 1, len(keys), dtype=torch.float64)
    _, S = chunked(keys[None, None], keys[None, None], values[None, None], one, -0.1 * one, write="hebb", chunk=5)
    age = torch.arange(len(keys) - 1, -1, -1).double()
    torch.testing.assert_close(S[0, 0], keys.T @ ((-0.1 * age).exp()[:, None] * values))


@pytest.mark.parametrize("M", [5, 11, 40])
def test_repeated_delta_writes_converge_to_least_squares(M):
    keys, values = memories_of(M=M)
    best = LeastSquares().write(keys, values).W.T
    step = 1.0 if M < keys.shape[1] else 0.01  # a small step, as beyond d_k memories contradict one another
    one = torch.ones(1, 1, M, dtype=torch.float64)
    S, gaps = None, []
    for passes in (1, 1000):
        for _ in range(passes):
            _, S = chunked(keys[None, None], keys[None, None], values[None, None], step * one, 0 * one, S, chunk=M)
        gaps.append(((S[0, 0] - best).norm() / best.norm()).item())
    assert gaps[1] < 0.02 < gaps[0]


def test_the_delta_rule_recalls_what_it_has_just_written():
    _, k, v, beta, g, _ = inputs(7, beta=1)
    o, _ = chunked(k, k, v, beta, g)
    torch.testing.assert_close(o, v)
    o, _ = chunked(k, k, v, beta, g, write="hebb")
    assert not torch.allclose(o, v)


# --- precision and bad input -----------------------------------------------------------------------


@pytest.mark.parametrize("C", [1, 2, 3, 7, 16, 33])
def test_the_inverse_of_a_unit_triangle(C):
    A = torch.randn(2, 3, C, C, generator=torch.Generator().manual_seed(C), dtype=torch.float64)
    matrix = torch.eye(C, dtype=torch.float64) + A.tril(-1)
    torch.testing.assert_close(_unit_lower_inverse(A) @ matrix, torch.eye(C, dtype=torch.float64).expand_as(A))


@pytest.mark.parametrize("form", [recurrence, chunked])
def test_half_precision_keeps_its_state_in_float32(form):
    q, k, v, beta, g, _ = inputs(8, T=64, dtype=torch.bfloat16)
    o, S = form(q, k, v, beta, g)
    assert (o.dtype, S.dtype) == (torch.bfloat16, torch.float32)
    exact, _ = recurrence(*(x.double() for x in (q, k, v, beta, g)))
    assert (o - exact).abs().max() < 0.01 * exact.abs().max()


BAD = [
    ("q", lambda x: x[0], ValueError, r"q must have shape \(batch, heads, T, d_k\) .* got \(3, 11, 5\)"),
    ("q", lambda x: x[:, :, :0], ValueError, "q must have shape .* without an empty axis"),
    ("q", lambda x: x.float(), TypeError, "k and q must have one dtype"),
    ("k", lambda x: x[:, :, :4], ValueError, r"k must have shape .* = \(2, 3, 11, 5\) like q, got \(2, 3, 4, 5\)"),
    ("k", lambda x: x[..., :3], ValueError, "k must have shape .* like q"),
    ("v", lambda x: x[:, :1], ValueError, r"v must have shape .* like q, got \(2, 1, 11, 7\)"),
    ("v", lambda x: x * math.nan, ValueError, "v must be finite"),
    ("v", lambda x: x[0], ValueError, "v must have shape"),
    ("beta", lambda x: x[..., None], ValueError, r"beta must have shape \(batch, heads, T\)"),
    ("beta", lambda x: 0.5, TypeError, "beta must be a torch.Tensor, got float"),
    ("g", lambda x: x[:, :, 1:], ValueError, "g must have shape"),
    ("g", lambda x: -x, ValueError, "g must be at most 0 .* got "),
    ("g", lambda x: x - math.inf, ValueError, "g must be finite"),
    ("g", lambda x: x.long(), TypeError, "g must have a floating-point dtype, got torch.int64"),
    ("state", lambda x: x.mT, ValueError, r"state must have shape \(batch, heads, d_k, d_v\) = \(2, 3, 5, 7\)"),
    ("state", lambda x: x.to("meta"), ValueError, "state must hold numbers, got a tensor on the meta device"),
]


@pytest.mark.parametrize("form", [recurrence, chunked])
@pytest.mark.parametrize(("name", "spoil", "kind", "words"), BAD)
def test_bad_tensors_are_refused(form, name, spoil, kind, words):
    given = dict(zip(("q", "k", "v", "beta", "g", "state"), inputs(), strict=True))
    given[name] = spoil(given[name])
    with pytest.raises(kind, match=words):
        form(**given)


@pytest.mark.parametrize(
    ("chunk", "kind", "words"),
    [
        (0, ValueError, "chunk must be at least 1, got 0"),
        (-2, ValueError, "chunk must be at least 1, got -2"),
        (2.5, TypeError, "chunk must be an integer, got 2.5"),
    ],
)
def test_bad_chunks_are_refused(chunk, kind, words):
    with pytest.raises(kind, match=words):
        chunked(*inputs(), chunk=chunk)


@pytest.mark.parametrize("form", [recurrence, chunked])
def test_an_unknown_write_is_refused(form):
    with pytest.raises(ValueError, match="write must be one of 'delta', 'hebb', got 'oja'"):
        form(*inputs(), write="oja")
