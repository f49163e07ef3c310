"""Keys, values and noisy queries: their lengths, laws and seeds, and what is refused."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from memstore_lib import memories
from tests.test_device import DEVICES, one_thread  # noqa: F401

PROPERTY = settings(max_examples=30, deadline=None, derandomize=True)
DTYPES = [torch.float32, torch.float64]
DRAWS = [memories.unit_keys, memories.values, memories.gaussian_keys, memories.orthonormal_keys]
seeds = st.integers(0, 2**31)


def tolerance(dtype: torch.dtype) -> float:
    return 1e-12 if dtype == torch.float64 else 1e-5


def on(device: str, dtype: torch.dtype) -> dict:
    if device == "mps" and dtype == torch.float64:
        pytest.skip("MPS has no float64")
    return {"device": device, "dtype": dtype}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@given(M=st.integers(1, 40), d=st.integers(1, 30), seed=seeds)
@PROPERTY
def test_unit_keys_and_values_have_unit_rows(device, dtype, M, d, seed):
    for draw in (memories.unit_keys, memories.values):
        x = draw(M, d, seed=seed, **on(device, dtype))
        assert (x.shape, x.dtype, x.device.type) == ((M, d), dtype, device)
        assert torch.allclose(x.norm(dim=1), torch.ones(M, **on(device, dtype)), atol=tolerance(dtype), rtol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@given(M=st.integers(1, 12), extra=st.integers(0, 8), seed=seeds)
@PROPERTY
def test_orthonormal_keys_are_orthonormal(device, dtype, M, extra, seed):
    K = memories.orthonormal_keys(M, M + extra, seed=seed, **on(device, dtype))
    assert (K.shape, K.dtype, K.device.type) == ((M, M + extra), dtype, device)
    assert torch.allclose(K @ K.T, torch.eye(M, **on(device, dtype)), atol=tolerance(dtype), rtol=0)


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_seed_decides_everything(draw, dtype):
    first = draw(5, 7, seed=3, device="cpu", dtype=dtype)
    torch.manual_seed(999)
    state = torch.get_rng_state()
    assert torch.equal(first, draw(5, 7, seed=3, device="cpu", dtype=dtype))
    assert torch.equal(torch.get_rng_state(), state), "torch's global generator was used"
    assert not torch.equal(first, draw(5, 7, seed=4, device="cpu", dtype=dtype))
    generator = torch.Generator().manual_seed(3)
    assert torch.equal(first, draw(5, 7, generator=generator, device="cpu", dtype=dtype))
    assert not torch.equal(first, draw(5, 7, generator=generator, device="cpu", dtype=dtype)), "a generator moves on"


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("device", DEVICES)
def test_a_seed_gives_the_same_draw_on_every_device(draw, device):
    there = draw(5, 7, seed=11, device=device).cpu()
    assert torch.allclose(there, draw(5, 7, seed=11, device="cpu"), atol=1e-6, rtol=0)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_generator_draws_on_its_own_device():
    generator = torch.Generator("cuda").manual_seed(3)
    assert memories.unit_keys(5, 7, generator=generator, device="cpu").device.type == "cpu"
    assert memories.unit_keys(5, 7, generator=generator, device="cuda").device.type == "cuda"


@pytest.mark.parametrize("d", [2, 3, 5, 31])
def test_unit_keys_are_uniform_on_the_sphere(d):
    K = memories.unit_keys(20_000, d, seed=d, device="cpu", dtype=torch.float64)
    # (1 + s)/2 of a uniform direction's similarity to any fixed one is Beta((d-1)/2, (d-1)/2).
    fixed = torch.linspace(1, 2, d, dtype=torch.float64)
    s = (K @ (fixed / fixed.norm())).numpy()
    assert stats.kstest((1 + s) / 2, stats.beta((d - 1) / 2, (d - 1) / 2).cdf).pvalue > 1e-3


def test_values_have_zero_mean():
    M, d_v = 40_000, 6
    V = memories.values(M, d_v, seed=5, device="cpu", dtype=torch.float64)
    # The mean of M independent unit vectors has an expected squared length of 1/M.
    assert V.mean(0).norm().item() ** 2 < 4 / M
    assert torch.allclose(V.T @ V / M, torch.eye(d_v, dtype=torch.float64) / d_v, atol=4 / math.sqrt(M))


def test_gaussian_keys_are_unit_length_on_average_only():
    M, d = 40_000, 12
    K = memories.gaussian_keys(M, d, seed=5, device="cpu", dtype=torch.float64)
    assert (K.norm(dim=1) ** 2).mean().item() == pytest.approx(1, abs=4 * math.sqrt(2 / d / M))
    assert (K.norm(dim=1) ** 2).var().item() == pytest.approx(2 / d, rel=0.1)
    assert stats.kstest((K[:, 4] * math.sqrt(d)).numpy(), "norm").pvalue > 1e-3
    assert K.dtype == torch.float64


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@given(M=st.integers(1, 12), d=st.integers(2, 9), share=st.floats(0, 1), seed=seeds)
@PROPERTY
def test_shared_values_have_unit_length_and_a_common_part(device, dtype, M, d, share, seed):
    V = memories.shared_values(M, d, share=share, seed=seed, **on(device, dtype))
    assert (V.shape, V.dtype, V.device.type) == ((M, d), dtype, device)
    limit = 10 * tolerance(dtype)
    assert torch.allclose(V.norm(dim=1), torch.ones(M, **on(device, dtype)), atol=limit, rtol=0)
    # The common direction, drawn first: every value has the same part along it.
    common = memories.unit_keys(M + 1, d, seed=seed, **on(device, dtype))[0]
    assert torch.allclose(V @ common, torch.full((M,), math.sqrt(share), **on(device, dtype)), atol=limit, rtol=0)


def test_the_rest_of_shared_values_has_zero_mean():
    V = memories.shared_values(40_000, 6, share=0.3, seed=5, device="cpu", dtype=torch.float64)
    mean = V.mean(0)
    assert mean.norm().item() ** 2 == pytest.approx(0.3, abs=0.01)
    assert (V @ mean / mean.norm()).numpy() == pytest.approx(math.sqrt(0.3), abs=0.02)
    assert torch.equal(memories.shared_values(3, 1, share=1, seed=0), memories.shared_values(3, 1, share=1.0, seed=0))


@pytest.mark.parametrize(
    ("d_v", "share", "error", "words"),
    [
        (4, -0.1, ValueError, r"share must lie in \[0, 1\], got -0.1"),
        (4, 1.5, ValueError, r"share must lie in \[0, 1\], got 1.5"),
        (4, math.nan, ValueError, "share must be finite, got nan"),
        (4, "0.5", TypeError, "share must be a real number, got '0.5'"),
        (1, 0.5, ValueError, r"share must be 1 where d_v = 1, .* got 0.5"),
        (0, 0.5, ValueError, "d_v must be at least 1, got 0"),
    ],
)
def test_shares_are_checked(d_v, share, error, words):
    with pytest.raises(error, match=words):
        memories.shared_values(3, d_v, share=share, seed=0)


def test_orthonormal_draws_are_uniform():
    frames = [memories.orthonormal_keys(3, 3, seed=s, device="cpu", dtype=torch.float64) for s in range(600)]
    entries = torch.stack(frames)
    # Every entry of a uniform rotation or reflection has mean 0 and variance 1/d; QR's own signs would shift them.
    assert entries.mean(0).abs().max().item() < 4 / math.sqrt(3 * 600)
    assert (entries**2).mean(0).numpy() == pytest.approx(np.full((3, 3), 1 / 3), abs=0.06)
    assert 0.4 < (torch.linalg.det(entries) > 0).double().mean().item() < 0.6


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@given(n=st.integers(1, 9), d=st.integers(2, 20), c=st.floats(-1, 1), seed=seeds)
@PROPERTY
def test_noisy_queries_have_unit_length_and_the_cosine(device, dtype, n, d, c, seed):
    K = memories.unit_keys(n, d, seed=seed, **on(device, dtype))
    q = memories.noisy_queries(K, c, seed=seed + 1)
    assert (q.shape, q.dtype, q.device) == (K.shape, K.dtype, K.device)
    digits = 10 * tolerance(dtype)
    assert ((q * K).sum(1) - c).abs().max().item() < digits
    assert (q.norm(dim=1) - 1).abs().max().item() < digits


def test_noise_that_falls_along_the_key_keeps_the_cosine():
    # In two dimensions one draw in a thousand lies within 0.1 degrees of its key.
    K = memories.unit_keys(100_000, 2, seed=0, device="cpu")
    q = memories.noisy_queries(K, 0.3, seed=1)
    assert ((q * K).sum(1) - 0.3).abs().max().item() < 1e-6


def test_noise_of_queries_is_uniform_across_the_key():
    d, n, c = 5, 20_000, 0.6
    key = memories.unit_keys(1, d, seed=0, device="cpu", dtype=torch.float64)
    q = memories.noisy_queries(key.expand(n, d), c, seed=1)
    noise = (q - c * key) / math.sqrt(1 - c * c)
    across = noise @ memories.orthonormal_keys(d, d, seed=2, device="cpu", dtype=torch.float64).T
    assert noise.mean(0).norm().item() ** 2 < 4 / n
    assert (across**2).sum(1).numpy() == pytest.approx(1, abs=1e-9)
    # Uniform in the d - 1 dimensions across the key.
    other = torch.linalg.qr(torch.cat([key, torch.eye(d, dtype=torch.float64)[:1]]).T)[0][:, 1]
    s = (noise @ other).numpy()
    assert stats.kstest((1 + s) / 2, stats.beta((d - 2) / 2, (d - 2) / 2).cdf).pvalue > 1e-3


@pytest.mark.parametrize("d", [1, 2, 6])
def test_cosine_one_asks_with_the_key_itself(d):
    K = memories.unit_keys(4, d, seed=0, device="cpu")
    assert torch.equal(memories.noisy_queries(K, 1, seed=1), K)
    assert torch.equal(memories.noisy_queries(K, -1.0, seed=1), -K)


def test_queries_are_reproducible():
    K = memories.unit_keys(4, 6, seed=0, device="cpu")
    assert torch.equal(memories.noisy_queries(K, 0.5, seed=1), memories.noisy_queries(K, 0.5, seed=1))
    assert not torch.equal(memories.noisy_queries(K, 0.5, seed=1), memories.noisy_queries(K, 0.5, seed=2))


def test_neighbouring_seeds_share_no_replicates():
    states = {
        memories.replicate_generator(seed, r).initial_seed() for seed, r in itertools.product(range(30), range(30))
    }
    assert len(states) == 900
    again = memories.replicate_generator(7, 3)
    assert again.initial_seed() == memories.replicate_generator(7, 3).initial_seed()
    assert again.device.type == "cpu"


SIZES = [
    (0, ValueError, "at least 1, got 0"),
    (-3, ValueError, "at least 1, got -3"),
    (2.0, TypeError, "an integer, got 2.0 of type float"),
    ("3", TypeError, "an integer, got '3' of type str"),
    (True, TypeError, "an integer, got True of type bool"),
    (None, TypeError, "an integer, got None of type NoneType"),
]


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(("size", "error", "words"), SIZES)
def test_sizes_are_checked(draw, size, error, words):
    columns = "d_v" if draw is memories.values else "d_k"
    with pytest.raises(error, match=f"^M must be {words}"):
        draw(size, 3, seed=0)
    with pytest.raises(error, match=f"^{columns} must be {words}"):
        draw(1, size, seed=0)


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, ValueError, "exactly one of seed and generator, got neither"),
        ({"seed": 0, "generator": torch.Generator()}, ValueError, "exactly one of seed and generator, got both"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"seed": 1.5}, TypeError, "seed must be an integer, got 1.5 of type float"),
        ({"generator": 3}, TypeError, "generator must be a torch.Generator, got int"),
        ({"seed": 0, "dtype": torch.int64}, TypeError, "dtype must be a floating-point torch.dtype, got torch.int64"),
        ({"seed": 0, "dtype": torch.complex64}, TypeError, "dtype must be a floating-point torch.dtype, got torch.com"),
        ({"seed": 0, "dtype": "float32"}, TypeError, "dtype must be a floating-point torch.dtype, got float32"),
        ({"seed": 0, "device": "gpu"}, ValueError, "device must be one of cuda, mps, cpu, got 'gpu'"),
        ({"seed": 0, "device": 0}, TypeError, "device must be a device name or torch.device, got int"),
    ],
)
def test_options_of_draws_are_checked(draw, options, error, words):
    with pytest.raises(error, match=words):
        draw(3, 4, **options)


def test_more_orthonormal_keys_than_dimensions_are_refused():
    with pytest.raises(ValueError, match=r"M must be at most d_k, .* got M = 6 and d_k = 5"):
        memories.orthonormal_keys(6, 5, seed=0)


KEYS = memories.unit_keys(4, 3, seed=0, device="cpu")
BROKEN = KEYS.clone()
BROKEN[1, 2] = math.nan


@pytest.mark.parametrize(
    ("keys", "cosine", "options", "error", "words"),
    [
        (KEYS, 1.5, {"seed": 0}, ValueError, r"cosine must lie in \[-1, 1\], got 1.5"),
        (KEYS, -1.001, {"seed": 0}, ValueError, r"cosine must lie in \[-1, 1\], got -1.001"),
        (KEYS, math.nan, {"seed": 0}, ValueError, "cosine must be finite, got nan"),
        (KEYS, "0.5", {"seed": 0}, TypeError, "cosine must be a real number, got '0.5' of type str"),
        (KEYS, True, {"seed": 0}, TypeError, "cosine must be a real number, got True of type bool"),
        (KEYS, 1j, {"seed": 0}, TypeError, "cosine must be a real number"),
        (2 * KEYS, 0.5, {"seed": 0}, ValueError, "keys must have rows of unit length, got a row of norm 2; a cosine"),
        (0 * KEYS, 0.5, {"seed": 0}, ValueError, "keys must have rows of unit length, got a row of norm 0; a cosine"),
        (BROKEN, 0.5, {"seed": 0}, ValueError, r"keys must be finite, got NaN or infinity in .* \(4, 3\)"),
        (KEYS / 0, 0.5, {"seed": 0}, ValueError, "keys must be finite, got NaN or infinity"),
        (KEYS[0], 0.5, {"seed": 0}, ValueError, r"keys must have shape \(n, d_k\), got \(3,\)"),
        (KEYS[:0], 0.5, {"seed": 0}, ValueError, r"keys must have shape .* without an empty axis, got \(0, 3\)"),
        (KEYS[:, :0], 0.5, {"seed": 0}, ValueError, r"keys must have shape .* without an empty axis, got \(4, 0\)"),
        (
            torch.eye(3, dtype=torch.int64),
            0.5,
            {"seed": 0},
            TypeError,
            "keys must have a floating-point dtype",
        ),
        (np.eye(3), 0.5, {"seed": 0}, TypeError, "keys must be a torch.Tensor, got ndarray"),
        (torch.ones(2, 1), 0.5, {"seed": 0}, ValueError, "cosine must be 1 or -1 where d_k = 1, .* got 0.5"),
        (KEYS, 0.5, {}, ValueError, "exactly one of seed and generator, got neither"),
        (KEYS, 1.0, {"seed": -1}, ValueError, "seed must be at least 0, got -1"),
    ],
)
def test_queries_are_checked(keys, cosine, options, error, words):
    with pytest.raises(error, match=words):
        memories.noisy_queries(keys, cosine, **options)


@pytest.mark.parametrize(
    ("pair", "error", "words"),
    [
        ((-1, 0), ValueError, "seed must be at least 0, got -1"),
        ((0, -1), ValueError, "replicate must be at least 0, got -1"),
        ((0.5, 0), TypeError, "seed must be an integer, got 0.5"),
        ((0, None), TypeError, "replicate must be an integer, got None"),
    ],
)
def test_replicates_are_checked(pair, error, words):
    with pytest.raises(error, match=words):
        memories.replicate_generator(*pair)
