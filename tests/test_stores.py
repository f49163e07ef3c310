"""Stores: every identity of the ledger's chapters outer-product and least-squares, and what is refused."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from memstore_lib import memories, stores
from memstore_lib.scores import SCORES, Exponential, ReLU
from memstore_lib.stores import (
    MLP,
    STORES,
    Attention,
    GatedFeatures,
    LeastSquares,
    OuterProduct,
    Store,
    empty_store,
    empty_stores,
)
from tests.test_device import DEVICES, one_thread  # noqa: F401

PROPERTY = settings(max_examples=25, deadline=None, derandomize=True)
DTYPES = [torch.float32, torch.float64]
everywhere = pytest.mark.parametrize("device", DEVICES)
in_both = pytest.mark.parametrize("dtype", DTYPES)
seeds = st.integers(0, 2**31)
# Sizes that all differ, so that a swapped axis cannot pass: M, d_k, d_v, n.
sizes = st.lists(st.integers(1, 17), min_size=4, max_size=4, unique=True)
# The same with more memories than dimensions, with fewer, and with as many.
crowded = sizes.map(lambda x: [*sorted(x[:2], reverse=True), *x[2:]])
roomy = sizes.map(lambda x: [*sorted(x[:2]), *x[2:]])
square = st.lists(st.integers(1, 13), min_size=3, max_size=3, unique=True).map(lambda x: [x[0], *x])
any_sizes = st.one_of(crowded, roomy, square)


def draws(seed, M, d_k, d_v, n, device="cpu", dtype=torch.float64):
    """Return unit keys (M, d_k), values (M, d_v) and queries (n, d_k) of any length."""
    if device == "mps" and dtype == torch.float64:
        pytest.skip("MPS has no float64")
    draw, there = torch.Generator().manual_seed(seed), {"device": device, "dtype": dtype}
    K = memories.unit_keys(M, d_k, generator=draw, **there)
    V = memories.values(M, d_v, generator=draw, **there)
    return K, V, 1.5 * memories.gaussian_keys(n, d_k, generator=draw, **there)


def eye(M, like):
    return torch.eye(M, dtype=like.dtype, device=like.device)


def close(left, right, scale=1.0):
    """Compare relative to the largest entry, to the precision of the dtype times ``scale``."""
    assert (left.shape, left.dtype, left.device) == (right.shape, right.dtype, right.device)
    limit = 64 * torch.finfo(right.dtype).eps * scale * max(1.0, right.abs().max().item())
    worst = (left - right).abs().max().item()
    assert worst <= limit, f"differ by {worst:.3g}, allowed {limit:.3g}"


def condition(K):
    """Return the ratio of the largest to the smallest singular value."""
    s = np.linalg.svd(K.cpu().double().numpy(), compute_uv=False)
    return s[0] / s[-1]


# --- outer product ---------------------------------------------------------------------------------


@everywhere
@in_both
@given(sizes, seeds)
@PROPERTY
def test_state_is_the_sum_of_outer_products(device, dtype, sizes, seed):
    K, V, _ = draws(seed, *sizes, device, dtype)
    W = OuterProduct().write(K, V).W
    close(W, sum(torch.outer(v, k) for k, v in zip(K, V, strict=True)))
    close(W, V.T @ K)


@everywhere
@in_both
@given(sizes, seeds)
@PROPERTY
def test_one_more_memory_adds_one_outer_product(device, dtype, sizes, seed):
    K, V, Q = draws(seed, *sizes, device, dtype)
    store = OuterProduct().write(K, V)
    before, keys, values = store.W.clone(), store.keys.clone(), store.values.clone()
    store.write(Q[0], V[0])
    close(store.W, before + torch.outer(V[0], Q[0]))
    assert torch.equal(store.keys[:-1], keys)
    assert torch.equal(store.values[:-1], values)
    assert torch.equal(store.keys[-1], Q[0])
    assert torch.equal(store.values[-1], V[0])


@everywhere
@in_both
@given(sizes, seeds)
@PROPERTY
def test_recall_is_a_similarity_weighted_sum(device, dtype, sizes, seed):
    K, V, Q = draws(seed, *sizes, device, dtype)
    store = OuterProduct().write(K, V)
    close(store.weights(Q), Q @ K.T)
    close(store.recall(Q), Q @ store.W.T)
    close(store.recall(Q[0]), sum(v * (k @ Q[0]) for k, v in zip(K, V, strict=True)))


@everywhere
@in_both
@given(sizes, seeds)
@PROPERTY
def test_recall_splits_into_signal_and_interference(device, dtype, sizes, seed):
    K, V, _ = draws(seed, *sizes, device, dtype)
    j = seed % len(K)
    interference = sum((V[i] * (K[i] @ K[j]) for i in range(len(K)) if i != j), torch.zeros_like(V[j]))
    close(OuterProduct().write(K, V).recall(K[j]), V[j] + interference)


@everywhere
@in_both
@given(sizes, seeds, st.floats(0.01, 100))
@PROPERTY
def test_a_scaled_key_scales_its_recall(device, dtype, sizes, seed, length):
    K, V, _ = draws(seed, *sizes, device, dtype)
    key = length * K[0]
    close(OuterProduct().write(key, V[0]).recall(key), V[0] * key.norm() ** 2)


@everywhere
@in_both
@given(roomy, seeds)
@PROPERTY
def test_orthonormal_keys_recall_exactly(device, dtype, sizes, seed):
    M, d_k, d_v, _ = sizes
    _, V, _ = draws(seed, *sizes, device, dtype)
    E = memories.orthonormal_keys(M, d_k, seed=seed, device=device, dtype=dtype)
    for store in (OuterProduct(), LeastSquares()):
        close(store.write(E, V).recall(E), V)
    full = memories.orthonormal_keys(d_k, d_k, seed=seed, device=device, dtype=dtype)
    values = memories.values(d_k, d_v, seed=seed, device=device, dtype=dtype)
    close(OuterProduct().write(full, values).recall(full), values)


def sgd_step(W, x, loss, rate):
    """Return the weights after one step on loss(y), y = W x, by autograd through W, and ∂L/∂y."""
    W = W.clone().requires_grad_()
    y = W @ x
    into_weights, into_output = torch.autograd.grad(loss(y), (W, y))
    return W.detach() - rate * into_weights, into_output


@everywhere
@in_both
@given(sizes, seeds, st.floats(0.001, 1))
@PROPERTY
def test_a_gradient_step_writes_a_memory(device, dtype, sizes, seed, rate):
    K, V, Q = draws(seed, *sizes, device, dtype)
    before, x = V.T @ K, Q[0]
    after, slope = sgd_step(before, x, lambda y: torch.nn.functional.softplus(y - V[0]).sum() + (y**3).mean(), rate)
    step = OuterProduct().write(x, -rate * slope)
    close(after - before, step.W, scale=16 * len(K))
    close(after, before + step.W)
    close(OuterProduct().write(K, V).write(x, -rate * slope).W, after)


@everywhere
@in_both
@given(sizes, seeds)
@PROPERTY
def test_a_trained_linear_layer_is_attention_over_its_inputs(device, dtype, sizes, seed):
    K, V, Q = draws(seed, *sizes, device, dtype)
    start, rate = 0.5 * V.T @ K, 0.3
    W, seen = start, OuterProduct()
    for _ in range(2):  # two passes, one input at a time
        for x, target in zip(K, V, strict=True):
            W, slope = sgd_step(W, x, lambda y, target=target: ((y - target) ** 2).sum(), rate)
            seen.write(x, -rate * slope)
    assert len(seen) == 2 * len(K)
    close(Q @ W.T, Q @ start.T + (Q @ seen.keys.T) @ seen.values, scale=16)
    close(Q @ W.T, Q @ start.T + seen.recall(Q), scale=16)


@everywhere
@in_both
@given(sizes, seeds)
@PROPERTY
def test_linear_attention_keeps_this_store_as_its_state(device, dtype, sizes, seed):
    T, d_k, d_v, _ = sizes
    K, V, Q = draws(seed, T, d_k, d_v, T, device, dtype)
    causal = torch.tril(Q @ K.T) @ V
    store, S, outputs = OuterProduct(), torch.zeros(d_v, d_k, device=device, dtype=dtype), []
    for t in range(T):
        S = S + torch.outer(V[t], K[t])
        outputs.append(store.write(K[t], V[t]).recall(Q[t]))
        close(store.W, S)
    close(torch.stack(outputs), causal)


# --- least squares ---------------------------------------------------------------------------------


@everywhere
@in_both
@given(crowded, seeds)
@PROPERTY
def test_crowded_least_squares_solves_the_normal_equations(device, dtype, sizes, seed):
    K, V, Q = draws(seed, *sizes, device, dtype)
    store, bad = LeastSquares().write(K, V), condition(K)
    close(store.W @ (K.T @ K), V.T @ K, scale=bad)
    gram = (K.cpu().double().T @ K.cpu().double()).inverse()
    close(store.W, (V.cpu().double().T @ K.cpu().double() @ gram).to(dtype).to(device), scale=bad**2)
    close(store.recall(Q), Q @ store.W.T, scale=bad)


@everywhere
@in_both
@given(st.one_of(roomy, square), seeds)
@PROPERTY
def test_roomy_least_squares_fits_with_the_smallest_norm(device, dtype, sizes, seed):
    K, V, _ = draws(seed, *sizes, device, dtype)
    store, bad = LeastSquares().write(K, V), condition(K)
    assume(bad < 1e4)
    W = store.W
    close(store.recall(K), V, scale=bad)
    gram = (K.cpu().double() @ K.cpu().double().T).inverse()
    close(W, (V.cpu().double().T @ gram @ K.cpu().double()).to(dtype).to(device), scale=bad**2)
    # Every other map that fits is W + N with N blind to the keys. It must be longer, by exactly N's share.
    blind = eye(K.shape[1], K) - torch.linalg.pinv(K.cpu()).to(K) @ K
    N = memories.gaussian_keys(len(W), W.shape[1], seed=seed + 1, device=device, dtype=dtype) @ blind
    close((W + N) @ K.T, V.T, scale=bad)
    assert (W + N).norm() ** 2 == pytest.approx((W.norm() ** 2 + N.norm() ** 2).item(), rel=1e-3)
    if len(K) < K.shape[1]:
        assert (W + N).norm() > W.norm()


@given(any_sizes, seeds)
@PROPERTY
def test_no_linear_map_fits_better(sizes, seed):
    K, V, _ = draws(seed, *sizes)
    W = LeastSquares().write(K, V).W
    error = ((K @ W.T - V) ** 2).sum()
    step = memories.gaussian_keys(len(W), W.shape[1], seed=seed + 1, device="cpu", dtype=torch.float64)
    for size in (1e-3, 1e-1, 10):
        for sign in (-1, 1):
            assert ((K @ (W + sign * size * step).T - V) ** 2).sum() >= error - 1e-12


@everywhere
@in_both
@given(any_sizes, seeds)
@PROPERTY
def test_least_squares_is_the_pseudoinverse(device, dtype, sizes, seed):
    K, V, _ = draws(seed, *sizes, device, dtype)
    bad = condition(K)
    assume(bad < 1e4)
    inverse = np.linalg.pinv(K.cpu().double().numpy().T)
    expected = torch.from_numpy(V.cpu().double().numpy().T @ inverse).to(dtype).to(device)
    close(LeastSquares().write(K, V).W, expected, scale=bad**2 if dtype == torch.float64 else bad)


@everywhere
@in_both
@given(st.one_of(roomy, square), seeds)
@PROPERTY
def test_dual_keys_are_the_dual_basis(device, dtype, sizes, seed):
    K, V, Q = draws(seed, *sizes, device, dtype)
    store, bad = LeastSquares().write(K, V), condition(K)
    assume(bad < 1e4)
    close(store.dual_keys @ K.T, eye(len(K), K), scale=bad)
    close(store.weights(K), eye(len(K), K), scale=bad)
    close(store.weights(Q), Q @ store.dual_keys.T)


@given(crowded, seeds)
@PROPERTY
def test_least_squares_is_the_outer_product_asked_through_whitening(sizes, seed):
    K, V, Q = draws(seed, *sizes)
    bad = condition(K)
    assume(bad < 1e4)
    least, outer = LeastSquares().write(K, V), OuterProduct().write(K, V)
    inverse = torch.linalg.inv(K.T @ K)
    close(least.weights(Q), outer.weights(Q @ inverse), scale=bad**2)
    close(least.recall(Q), outer.recall(Q @ inverse), scale=bad**2)
    energies, directions = torch.linalg.eigh(K.T @ K)
    white = K @ (directions / energies.sqrt()) @ directions.T
    close(white.T @ white, eye(K.shape[1], K), scale=bad**2)
    close(least.weights(K), white @ white.T, scale=bad**2)


@everywhere
@in_both
@given(crowded, seeds)
@PROPERTY
def test_weights_at_stored_keys_are_a_projection(device, dtype, sizes, seed):
    K, V, _ = draws(seed, *sizes, device, dtype)
    M, d = K.shape
    bad = condition(K)
    assume(bad < 1e3)
    P = LeastSquares().write(K, V).weights(K)
    close(P, P.T.contiguous(), scale=bad)
    close(P @ P, P, scale=bad)
    close(P @ K, K, scale=bad)
    own = P.diagonal()
    limit = 64 * torch.finfo(dtype).eps * bad**2
    assert own.sum().item() == pytest.approx(d, abs=M * limit)
    assert own.mean().item() == pytest.approx(d / M, abs=limit)
    assert own.min() >= -limit
    assert own.max() <= 1 + limit
    others = P - torch.diag(own)
    close((others**2).sum(0), own - own**2, scale=bad)
    close((others**2).sum(1), own - own**2, scale=bad)


@everywhere
@in_both
@pytest.mark.parametrize("M", [1, 2, 3, 5, 8, 12, 30])
def test_signal_of_least_squares_has_trace_d(device, dtype, M):
    d = 5
    K, V, _ = draws(M, M, d, 3, 2, device, dtype)
    P = LeastSquares().write(K, V).weights(K)
    assert P.trace().item() == pytest.approx(min(M, d), rel=1e-5)


# rank, M, d: keys that repeat or depend on each other.
RANKS = [(1, 2, 3), (3, 5, 7), (2, 5, 5), (4, 5, 5), (3, 9, 5), (4, 20, 6), (1, 6, 2), (31, 48, 33)]


@everywhere
@in_both
@pytest.mark.parametrize(("rank", "M", "d"), RANKS)
@pytest.mark.parametrize("kind", ["duplicates", "dependent"])
@given(seed=seeds)
@settings(max_examples=6, deadline=None, derandomize=True)
def test_duplicate_and_dependent_keys(device, dtype, rank, M, d, kind, seed):
    basis, V, Q = draws(seed, M, d, 4, 3, device, dtype)
    basis = basis[:rank]
    if kind == "duplicates":
        K = basis[torch.arange(M, device=device) % rank]
    else:
        mix = memories.gaussian_keys(M, rank, seed=seed + 1, device=device, dtype=dtype)
        K = torch.cat([basis, mix[rank:] @ basis])
        K = K / K.norm(dim=1, keepdim=True)
    store = LeastSquares().write(K, V)
    exact = K.cpu().double().numpy()
    sizes = np.linalg.svd(exact, compute_uv=False)
    bad = sizes[0] / sizes[rank - 1]
    assume(bad < 300)
    # The reference cuts between the keys' rank and their rounding.
    inverse = np.linalg.pinv(exact.T, rcond=0.1 / bad)
    expected = torch.from_numpy(V.cpu().double().numpy().T @ inverse)
    assert (store.W.cpu().double() - expected).abs().max().item() < 1e3 * torch.finfo(dtype).eps * bad**2
    P = store.weights(K)
    assert P.trace().item() == pytest.approx(rank, rel=1e-3)
    if kind == "duplicates":
        # Equal keys cannot be told apart: each recalls the mean of its values, each copy with an equal share.
        w = store.weights(Q)
        for j in range(min(rank, M - rank)):
            close(w[:, j], w[:, j + rank], scale=bad)
        means = torch.stack([V[j::rank].mean(0) for j in range(rank)])
        close(store.recall(basis), means, scale=16 * bad)


@in_both
@pytest.mark.parametrize(("more", "blank"), [(0, 0), (0, 8), (8, 0)], ids=["M = d", "M < d", "M > d"])
def test_keys_that_are_dependent_all_together(dtype, more, blank):
    # Each key is far from the span of those before it, and yet some combination of all of them nearly vanishes.
    n = 40
    K = torch.eye(n, dtype=torch.float64) - torch.tril(torch.ones(n, n, dtype=torch.float64), -1)
    K = torch.cat([K, torch.zeros(n, blank, dtype=torch.float64)], dim=1)
    K = torch.cat([K, K[:more]])
    K = (K / K.norm(dim=1, keepdim=True)).to(dtype)
    assert condition(K) > 1e11
    V = memories.values(len(K), 3, seed=0, device="cpu", dtype=dtype)
    # Single precision does not know that direction, double precision does; the normal equations square it away.
    cut = 1e-9 if dtype == torch.float32 or more else 1e-14
    expected = torch.from_numpy(V.double().numpy().T @ np.linalg.pinv(K.double().numpy().T, rcond=cut))
    assert LeastSquares().write(K, V).W.double().numpy() == pytest.approx(expected.numpy(), rel=1e-2, abs=1e-3)


@everywhere
@in_both
@given(any_sizes, seeds, st.floats(1e-3, 1e3))
@PROPERTY
def test_ridge_is_the_closed_form(device, dtype, sizes, seed, ridge):
    K, V, Q = draws(seed, *sizes, device, dtype)
    store = LeastSquares(ridge).write(K, V)
    exact, values = K.cpu().double(), V.cpu().double()
    primal = values.T @ exact @ torch.linalg.inv(exact.T @ exact + ridge * torch.eye(K.shape[1], dtype=exact.dtype))
    dual = values.T @ torch.linalg.inv(exact @ exact.T + ridge * torch.eye(len(K), dtype=exact.dtype)) @ exact
    scale = 1 + 10 / ridge if dtype == torch.float64 else 1
    close(store.W, primal.to(dtype).to(device), scale=scale)
    close(store.W, dual.to(dtype).to(device), scale=scale)
    close(store.recall(Q), Q @ store.W.T)
    # The gradient of Σ ‖W k - v‖² + λ ‖W‖² is zero there.
    close(store.W @ (K.T @ K) + ridge * store.W, V.T @ K, scale=1 + ridge)


@given(any_sizes, seeds)
@PROPERTY
def test_ridge_goes_from_least_squares_to_a_faint_outer_product(sizes, seed):
    K, V, _ = draws(seed, *sizes)
    assume(condition(K) < 30)
    close(LeastSquares(1e-10).write(K, V).W, LeastSquares().write(K, V).W, scale=1e10)
    close(1e8 * LeastSquares(1e8).write(K, V).W, OuterProduct().write(K, V).W, scale=1e8)
    norms = [LeastSquares(r).write(K, V).W.norm().item() for r in (0, 0.01, 0.1, 1, 10)]
    assert norms == sorted(norms, reverse=True)


@in_both
def test_ridge_bears_duplicates(dtype):
    K, V, _ = draws(3, 6, 6, 4, 2, dtype=dtype)
    K[3] = K[5]
    store = LeastSquares(0.25).write(K, V)
    gram = K.double().T @ K.double() + 0.25 * torch.eye(6, dtype=torch.float64)
    close(store.W, (V.double().T @ K.double() @ gram.inverse()).to(dtype))


def test_ridge_has_its_own_name():
    assert LeastSquares().name == LeastSquares(0).name == "least squares"
    assert LeastSquares(0.1).name == "ridge"
    assert LeastSquares(np.float64(0.5)).ridge == 0.5


@in_both
def test_least_squares_takes_keys_of_any_length(dtype):
    K, V, _ = draws(3, 9, 4, 5, 2, dtype=dtype)
    K = K * torch.logspace(-2, 2, 9, dtype=dtype)[:, None]
    expected = V.double().T @ torch.linalg.pinv(K.double().T)
    close(LeastSquares().write(K, V).W, expected.to(dtype), scale=condition(K))


# --- every store -----------------------------------------------------------------------------------

each_store = pytest.mark.parametrize("make", STORES.values(), ids=STORES)


def test_the_registry_holds_the_books_stores():
    assert {"outer product", "least squares", "ridge", *SCORES} <= set(STORES)
    for name, make in STORES.items():
        assert make().name == name
        assert make() is not make()
    assert isinstance(STORES["outer product"](), OuterProduct)


@everywhere
@in_both
@each_store
@given(sizes, seeds, st.data())
@settings(max_examples=6, deadline=None, derandomize=True)
def test_written_in_pieces_is_written_at_once(device, dtype, make, sizes, seed, data):
    K, V, Q = draws(seed, *sizes, device, dtype)
    assume(condition(K) < 100)
    whole, pieces, done = make().write(K, V), make(), 0
    while done < len(K):
        stop = done + data.draw(st.integers(1, len(K) - done))
        assert pieces.write(K[done:stop], V[done:stop]) is pieces
        assert len(pieces) == stop
        pieces.recall(Q)  # what a store caches must not outlive the next write
        done = stop
    one_by_one = make()
    for k, v in zip(K, V, strict=True):
        one_by_one.write(k, v)
        one_by_one.weights(Q[0])
    for other in (pieces, one_by_one):
        assert torch.equal(other.keys, K)
        assert torch.equal(other.values, V)
        close(other.weights(Q), whole.weights(Q))
        close(other.recall(Q), whole.recall(Q), scale=4)


@everywhere
@in_both
@each_store
@given(sizes, seeds)
@settings(max_examples=10, deadline=None, derandomize=True)
def test_shapes_dtypes_and_recall(device, dtype, make, sizes, seed):
    K, V, Q = draws(seed, *sizes, device, dtype)
    M, _, d_v, n = sizes
    store = make().write(K, V)
    w, r = store.weights(Q), store.recall(Q)
    assert (w.shape, r.shape) == ((n, M), (n, d_v))
    assert w.dtype == r.dtype == dtype
    assert w.device == r.device == K.device
    scale = 1 + w.abs().max().item()
    close(r, w @ V, scale=scale)
    assert store.weights(Q[0]).shape == (M,)
    assert store.recall(Q[0]).shape == (d_v,)
    close(store.weights(Q[0]), w[0], scale=scale)
    close(store.recall(Q[0]), r[0], scale=scale)


@each_store
def test_a_store_keeps_its_own_copy(make):
    K, V, Q = draws(0, 6, 4, 3, 2)
    store = make().write(K, V)
    before = store.recall(Q).clone()
    K.zero_()
    V.fill_(9)
    assert torch.equal(store.recall(Q), before)
    assert store.keys.norm(dim=1).numpy() == pytest.approx(1)


@each_store
def test_fresh_is_empty_and_independent(make):
    K, V, Q = draws(0, 6, 4, 3, 2)
    store = make().write(K, V)
    before = store.recall(Q)
    new = store.fresh()
    assert type(new) is type(store)
    assert (len(new), len(store), new.name) == (0, 6, store.name)
    new.write(2 * K[:2], V[4:])
    assert torch.equal(new.recall(Q), make().write(2 * K[:2], V[4:]).recall(Q))
    assert torch.equal(store.recall(Q), before)
    assert len(store) == 6


def test_fresh_keeps_the_settings():
    assert LeastSquares(0.7).fresh().ridge == 0.7
    assert MLP(ReLU(3)).fresh().score == ReLU(3)


@given(sizes, seeds)
@PROPERTY
def test_mlp_is_a_two_layer_network(sizes, seed):
    K, V, Q = draws(seed, *sizes)
    for score in SCORES.values():
        store = MLP(score).write(K, V)
        close(store.weights(Q), score(Q @ K.T))
        close(store.recall(Q[0]), V.T @ score(K @ Q[0]), scale=100)
        assert store.name == score.name
    close(MLP(SCORES["outer product"]).write(K, V).recall(Q), OuterProduct().write(K, V).recall(Q))


@given(sizes, seeds)
@PROPERTY
def test_exponential_store_is_unnormalised_attention(sizes, seed):
    K, V, Q = draws(seed, *sizes)
    w = MLP(Exponential(3.0)).write(K, V).weights(Q)
    close(w / w.sum(1, keepdim=True), torch.softmax(3.0 * Q @ K.T, dim=1))
    close(w / w.sum(1, keepdim=True), Attention(3.0).write(K, V).weights(Q))


@everywhere
@in_both
@given(sizes, seeds, st.integers(1, 20))
@PROPERTY
def test_attention_is_attention_whatever_its_chunks(device, dtype, sizes, seed, chunk):
    K, V, Q = draws(seed, *sizes, device, dtype)
    d = K.shape[1]
    store = Attention(math.sqrt(d), chunk=chunk).write(K, V)
    q, k, v = (x.cpu()[None] for x in (d**0.5 * Q, d**0.5 * K, V))
    whole = torch.nn.functional.scaled_dot_product_attention(q, k, v)[0]
    close(store.recall(Q), whole.to(device), scale=16)
    close(store.weights(Q).sum(1), torch.ones(len(Q), device=device, dtype=dtype))


@in_both
def test_attention_does_not_overflow(dtype):
    K, V, _ = draws(0, 9, 4, 3, 2, dtype=dtype)
    close(Attention(5000.0, chunk=2).write(K, V).recall(K), V)


@everywhere
@in_both
@given(sizes, seeds, st.integers(1, 40))
@settings(max_examples=10, deadline=None, derandomize=True)
def test_gated_features_are_an_outer_product_over_features(device, dtype, sizes, seed, units):
    K, V, Q = draws(seed, *sizes, device, dtype)
    store = GatedFeatures(units, seed=seed).write(K, V)
    assert store.features(K).shape == (len(K), units)
    assert torch.equal(store.features(K), store.fresh().features(K))
    W = V.T @ store.features(K)
    close(store.recall(Q), store.features(Q) @ W.T, scale=100)


def test_many_gated_units_square_the_similarity():
    K, V, Q = draws(0, 9, 6, 3, 5)
    w = GatedFeatures(100_000, seed=1).write(K, V).weights(Q)
    assert w.numpy() == pytest.approx(((Q @ K.T) ** 2).numpy(), abs=0.15)


class Nearest(Store):
    """A reader's store: all weight on the nearest key."""

    name = "nearest"

    def _weights(self, queries):
        return torch.nn.functional.one_hot((queries @ self.keys.T).argmax(1), len(self)).to(queries.dtype)


def test_a_readers_store_needs_only_its_weights():
    K, V, _ = draws(0, 6, 4, 3, 2)
    assert torch.equal(Nearest().write(K, V).recall(K), V)
    assert torch.equal(Nearest().write(K, V).recall(K[2]), V[2])


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(stores, "STORES", dict(STORES))
    return stores.STORES


def test_register_adds_a_store(registry):
    assert stores.register("nearest", Nearest) is Nearest
    assert registry["nearest"] is Nearest
    stores.register("nearest", Nearest)
    assert "nearest" not in STORES, "the test's own registry"


def test_a_notebook_cell_may_register_a_store_twice(registry):
    cell = "class Mine(OuterProduct.__mro__[1]):\n    name = 'mine'\n    _weights = OuterProduct._weights\n"
    for run in (cell + "register('mine', Mine)", cell + "register('made', lambda: Mine())"):
        space = {"OuterProduct": OuterProduct, "register": stores.register, "__name__": "__main__"}
        exec(run, space)
        exec(run, space)
        made = registry["mine" if "Mine)" in run else "made"]()
        assert type(made) is space["Mine"]


def test_a_store_takes_another_name_only_on_purpose(registry):
    other = lambda: LeastSquares(0.5)  # noqa: E731
    with pytest.raises(ValueError, match=r"store name 'ridge' is taken by LeastSquares: .* replace=True"):
        stores.register("ridge", other)
    assert registry["ridge"]().ridge == 0.1
    assert stores.register("ridge", other, replace=True) is other
    assert registry["ridge"]().ridge == 0.5


@pytest.mark.parametrize(
    ("name", "make", "error", "words"),
    [
        ("", Nearest, ValueError, "name must be a word or two, got ''"),
        (3, Nearest, ValueError, "name must be a word or two, got 3"),
        ("least squares", Nearest, ValueError, "store name 'least squares' is taken by LeastSquares"),
        ("new", dict, TypeError, "make must return a Store, got dict"),
        ("new", lambda: OuterProduct, TypeError, "make must return a Store, got"),
    ],
)
def test_register_refuses(registry, name, make, error, words):
    with pytest.raises(error, match=words):
        stores.register(name, make)
    assert set(registry) == set(STORES)


# --- bad input -------------------------------------------------------------------------------------

K, V, Q = draws(1, 6, 4, 3, 2)


# One of each class: the MLPs differ in their score only.
KINDS = {"outer product": OuterProduct, "least squares": LeastSquares, "MLP": lambda: MLP(ReLU(2))}
each_class = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


def spoiled(x, entry):
    out = x.clone()
    out[-1, -1] = entry
    return out


class Elsewhere(torch.Tensor):
    """Says that it lies on a GPU, so that machines without one can test what happens then."""

    device = torch.device("cuda:0")


def elsewhere(x):
    return x.clone().as_subclass(Elsewhere)


BAD_WRITES = {
    "more keys than values": (K, V[:5], ValueError, r"keys and values .* same number .*\(6, 4\).*\(5, 3\)"),
    "one key, many values": (K[0], V, ValueError, r"keys must have shape \(M, d_k\), or \(d_k,\) .*, got \(4,\)"),
    "many keys, one value": (K, V[0], ValueError, r"values must have shape \(M, d_v\), or \(d_v,\) .*, got \(3,\)"),
    "three axes": (K[None], V[None], ValueError, r"keys must have shape \(M, d_k\).* got \(1, 6, 4\)"),
    "a number as key": (K[0, 0], V[0, 0], ValueError, r"keys must have shape .*, got \(\)"),
    "no memories": (K[:0], V[:0], ValueError, r"keys .* without an empty axis, got \(0, 4\)"),
    "no key dimensions": (K[:, :0], V, ValueError, r"keys .* without an empty axis, got \(6, 0\)"),
    "no value dimensions": (K, V[:, :0], ValueError, r"values .* without an empty axis, got \(6, 0\)"),
    "an empty key": (K[0, :0], V[0], ValueError, r"keys .* without an empty axis, got \(1, 0\)"),
    "NaN in keys": (spoiled(K, math.nan), V, ValueError, r"keys must be finite, got NaN or infinity .* \(6, 4\)"),
    "NaN in values": (K, spoiled(V, math.nan), ValueError, r"values must be finite, got NaN or infinity .* \(6, 3\)"),
    "infinite keys": (spoiled(K, math.inf), V, ValueError, "keys must be finite, got NaN or infinity"),
    "infinite values": (K, spoiled(V, -math.inf), ValueError, "values must be finite, got NaN or infinity"),
    "a zero key": (torch.cat([K[:5], 0 * K[:1]]), V, ValueError, "keys must not be zero, got a key of norm 0 in row 5"),
    "one zero key": (0 * K[0], V[0], ValueError, "keys must not be zero, got a key of norm 0 in row 0"),
    "integer keys": (
        torch.ones(6, 4, dtype=torch.int64),
        V,
        TypeError,
        "keys .* floating-point dtype, got torch.i",
    ),
    "integer values": (
        K,
        torch.ones(6, 3, dtype=torch.int32),
        TypeError,
        "values .* floating-point dtype, got",
    ),
    "boolean keys": (K > 0, V, TypeError, "keys must have a floating-point dtype, got torch.bool"),
    "complex keys": (K + 0j, V, TypeError, "keys must have a floating-point dtype, got torch.complex128"),
    "numpy keys": (K.numpy(), V, TypeError, "keys must be a torch.Tensor, got ndarray"),
    "list of values": (K, V.tolist(), TypeError, "values must be a torch.Tensor, got list"),
    "None": (None, V, TypeError, "keys must be a torch.Tensor, got NoneType"),
    "two dtypes": (K.float(), V, TypeError, "keys of torch.float32 and values of torch.float64"),
    "two devices": (elsewhere(K), V, ValueError, "one device, got keys on cuda:0 and values on cpu"),
}
# Good by themselves, but not beside what is stored.
BAD_SECONDS = {
    "other key dimension": (
        K[:, :3],
        V,
        ValueError,
        r"keys must have 4 columns like the 6 stored .*\(6, 3\)",
    ),
    "other value dimension": (K, V[:, :2], ValueError, r"values must have 3 columns like the 6 stored .*\(6, 2\)"),
    "one key of another dimension": (K[0, :2], V[0], ValueError, r"keys must have 4 columns like .*\(1, 2\)"),
    "other device": (elsewhere(K), elsewhere(V), ValueError, "keys on cuda:0 and the stored keys on cpu"),
    "other dtype": (K.float(), V.float(), TypeError, "keys of torch.float32 and the stored keys of torch.float64"),
}


@each_class
@pytest.mark.parametrize(("keys", "values", "error", "words"), BAD_WRITES.values(), ids=BAD_WRITES)
def test_a_bad_write_is_refused(make, keys, values, error, words):
    store = make()
    with pytest.raises(error, match=words):
        store.write(keys, values)
    assert len(store) == 0
    with pytest.raises(ValueError, match="is empty"):
        store.recall(Q)
    assert torch.equal(store.write(K, V).recall(Q), make().write(K, V).recall(Q))


@each_class
@pytest.mark.parametrize(
    ("keys", "values", "error", "words"),
    [*BAD_WRITES.values(), *BAD_SECONDS.values()],
    ids=[*BAD_WRITES, *BAD_SECONDS],
)
def test_a_refused_second_write_leaves_the_store_as_it_was(make, keys, values, error, words):
    store = make().write(K, V)
    before = [store.keys.clone(), store.values.clone(), store.weights(Q), store.recall(Q)]
    state = getattr(store, "W", None)
    with pytest.raises(error, match=words):
        store.write(keys, values)
    assert len(store) == 6
    for left, right in zip(before, [store.keys, store.values, store.weights(Q), store.recall(Q)], strict=True):
        assert torch.equal(left, right)
    assert state is None or torch.equal(state, store.W)
    store.write(K[0], V[1])
    again = make().write(K, V).write(K[0], V[1])
    assert torch.equal(store.recall(Q), again.recall(Q)), "the next write must find nothing of the refused one"


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@each_class
def test_two_devices_are_refused_on_cuda(make):
    with pytest.raises(ValueError, match="keys on cuda:0 and values on cpu"):
        make().write(K.cuda(), V)
    store = make().write(K, V)
    with pytest.raises(ValueError, match="keys on cuda:0 and the stored keys on cpu"):
        store.write(K.cuda(), V.cuda())
    with pytest.raises(ValueError, match="queries on cuda:0 and the stored keys on cpu"):
        store.recall(Q.cuda())


@each_class
@pytest.mark.parametrize("ask", ["weights", "recall"])
@pytest.mark.parametrize(
    ("queries", "error", "words"),
    [
        (Q[:, :3], ValueError, r"queries must have d_k = 4 columns like the stored keys, got shape \(2, 3\)"),
        (Q[0, :3], ValueError, r"queries must have d_k = 4 columns like the stored keys, got shape \(3,\)"),
        (V, ValueError, r"queries must have d_k = 4 columns .*\(6, 3\)"),
        (Q[None], ValueError, r"queries must have shape \(n, d_k\) or \(d_k,\), got \(1, 2, 4\)"),
        (Q[0, 0], ValueError, r"queries must have shape \(n, d_k\) or \(d_k,\), got \(\)"),
        (Q[:0], ValueError, r"queries .* without an empty axis, got \(0, 4\)"),
        (Q[0, :0], ValueError, r"queries .* without an empty axis, got \(1, 0\)"),
        (spoiled(Q, math.nan), ValueError, r"queries must be finite, got NaN or infinity .*\(2, 4\)"),
        (spoiled(Q, math.inf), ValueError, "queries must be finite, got NaN or infinity"),
        (Q.long(), TypeError, "queries must have a floating-point dtype, got torch.int64"),
        (Q.float(), TypeError, "queries of torch.float32 and the stored keys of torch.float64"),
        (Q.numpy(), TypeError, "queries must be a torch.Tensor, got ndarray"),
        (None, TypeError, "queries must be a torch.Tensor, got NoneType"),
        (elsewhere(Q), ValueError, "queries on cuda:0 and the stored keys on cpu"),
    ],
)
def test_bad_queries_are_refused(make, ask, queries, error, words):
    store = make().write(K, V)
    with pytest.raises(error, match=words):
        getattr(store, ask)(queries)


@each_class
def test_an_empty_store_says_so(make):
    store = make()
    words = re.escape(f"store {store.name!r} is empty: write keys and values first")
    for ask in (lambda: store.weights(Q), lambda: store.recall(Q), lambda: store.keys, lambda: store.values):
        with pytest.raises(ValueError, match=words):
            ask()
    for attribute in ("W", "dual_keys"):
        if hasattr(type(store), attribute):
            with pytest.raises(ValueError, match=words):
                getattr(store, attribute)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: LeastSquares(-0.1), ValueError, r"ridge must lie in \[0, inf\), got -0.1"),
        (lambda: LeastSquares(math.nan), ValueError, "ridge must be finite, got nan"),
        (lambda: LeastSquares(math.inf), ValueError, "ridge must be finite, got inf"),
        (lambda: LeastSquares("1"), TypeError, "ridge must be a real number, got '1' of type str"),
        (lambda: LeastSquares(None), TypeError, "ridge must be a real number, got None of type NoneType"),
        (lambda: LeastSquares(True), TypeError, "ridge must be a real number, got True of type bool"),
        (lambda: Attention(-1.0), ValueError, r"beta must lie in \[0, inf\), got -1"),
        (lambda: Attention(math.inf), ValueError, "beta must be finite, got inf"),
        (lambda: Attention(8, chunk=0), ValueError, "chunk must be at least 1, got 0"),
        (lambda: Attention(8, chunk=2.0), TypeError, "chunk must be an integer, got 2.0 of type float"),
        (lambda: GatedFeatures(0), ValueError, "units must be at least 1, got 0"),
        (lambda: GatedFeatures(8, seed=-1), ValueError, "seed must be at least 0, got -1"),
        (lambda: MLP("ReLU"), TypeError, "score must be a Score, got str"),
        (lambda: MLP(ReLU), TypeError, "score must be a Score, got ABCMeta"),
        (lambda: MLP(torch.relu), TypeError, "score must be a Score, got builtin"),
        (Store, TypeError, "abstract"),
    ],
)
def test_settings_are_checked(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ([], ValueError, "stores must hold at least one store, got none"),
        ([OuterProduct(), "ridge"], TypeError, r"stores\[1\] must be a Store, got str"),
        (OuterProduct, TypeError, "stores must be a Store or a sequence of them, got ABCMeta"),
        (None, TypeError, "stores must be a Store or a sequence of them, got NoneType"),
        ([OuterProduct(), OuterProduct()], ValueError, r"different names, got \['outer product', 'outer product'\]"),
        (OuterProduct().write(K, V), ValueError, r"stores\[0\] must be empty, got 'outer product' with 6 memories"),
    ],
)
def test_lists_of_stores_are_checked(given, error, words):
    with pytest.raises(error, match=words):
        empty_stores(given)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ([OuterProduct()], TypeError, "store must be a Store, got list"),
        (OuterProduct, TypeError, "store must be a Store, got ABCMeta"),
        (OuterProduct().write(K, V), ValueError, "store must be empty, got 'outer product' with 6 memories"),
    ],
)
def test_single_stores_are_checked(given, error, words):
    with pytest.raises(error, match=words):
        empty_store(given)


def test_lists_of_stores():
    one, two = OuterProduct(), LeastSquares()
    assert empty_stores(one) == [one]
    assert empty_stores((one, two)) == [one, two]
    assert empty_stores(iter([two])) == [two]


class Broken(Store):
    name = "broken"

    def __init__(self, weights=None, recall=None):
        super().__init__()
        self.w, self.r = weights, recall

    def _weights(self, queries):
        return self.w if self.w is not None else queries @ self.keys.T

    def _recall(self, queries):
        return self.r if self.r is not None else super()._recall(queries)


@pytest.mark.parametrize(
    ("result", "came"), [(torch.ones(6, 2), r"\(6, 2\)"), (torch.ones(6), r"\(6,\)"), ([1.0], "list")]
)
def test_a_store_of_wrong_shape_is_named(result, came):
    store = Broken(weights=result).write(K, V)
    words = rf"weights of store 'broken' must have shape \(n, M\) = \(2, 6\), got {came}"
    for ask in (store.weights, store.recall):
        with pytest.raises(ValueError, match=words):
            ask(Q)
    store = Broken(recall=result).write(K, V)
    words = rf"recall of store 'broken' must have shape \(n, d_v\) = \(2, 3\), got {came}"
    with pytest.raises(ValueError, match=words):
        store.recall(Q)
    assert store.weights(Q).shape == (2, 6)
