"""Memories to store: random keys and values, and the queries that ask for them.

::

    K  keys,   (M, d_k)   unit rows, uniform on the sphere
    V  values, (M, d_v)   unit rows of zero mean, so that no value is favoured
    q  query,  (d_k,)     at cosine c to a stored key; c = 1 asks with the key itself

Every draw takes an explicit ``seed`` or ``generator``. A seed draws on the CPU and moves the result, so it gives the
same memories on every device; a generator draws on its own device, which is faster there and gives other numbers.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from memstore_lib import _checks
from memstore_lib.device import resolve


def generator_for(seed: int | None = None, generator: torch.Generator | None = None) -> torch.Generator:
    """Return the generator to draw from: ``generator`` itself, or a CPU generator started at ``seed``.

    Raises:
        ValueError: neither or both were given, or the seed is negative.
        TypeError: the seed is not an integer or the generator not a ``torch.Generator``.
    """
    if (seed is None) == (generator is None):
        given = "neither" if seed is None else "both"
        raise ValueError(f"give exactly one of seed and generator, got {given}")
    if generator is not None:
        if not isinstance(generator, torch.Generator):
            raise TypeError(f"generator must be a torch.Generator, got {type(generator).__name__}")
        return generator
    return torch.Generator().manual_seed(_checks.seed(seed))


def replicate_generator(seed: int, replicate: int) -> torch.Generator:
    """Return the CPU generator of one replicate; neighbouring seeds share no replicates.

    Raises:
        ValueError: seed or replicate below 0.
        TypeError: seed or replicate not an integer.
    """
    pair = [_checks.integer("seed", seed, minimum=0), _checks.integer("replicate", replicate, minimum=0)]
    state = np.random.SeedSequence(pair).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> 1))


def _normal(rows: int, columns: int, generator: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype must be a floating-point torch.dtype, got {dtype}")
    _checks.size(rows=rows, columns=columns)
    return torch.randn(rows, columns, generator=generator, device=generator.device, dtype=dtype)


def _unit(x: torch.Tensor) -> torch.Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def unit_keys(
    M: int,
    d_k: int,
    *,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Draw M unit keys, uniform on the sphere in d_k dimensions.

    Args:
        M: number of keys, at least 1.
        d_k: key dimension, at least 1.
        seed: start of a CPU generator; the same keys on every device.
        generator: draw from this generator instead, on its device.
        device: where the keys shall lie; None for :func:`memstore_lib.device.default_device`.
        dtype: floating-point dtype.

    Returns:
        Keys, (M, d_k).

    Raises:
        ValueError: M or d_k below 1, neither or both of seed and generator, unknown device.
        TypeError: M or d_k not an integer, dtype not floating point.
    """
    M, d_k = _checks.integer("M", M), _checks.integer("d_k", d_k)
    target = resolve(device)
    keys = _normal(M, d_k, generator_for(seed, generator), dtype)
    return keys.div_(keys.norm(dim=-1, keepdim=True)).to(target)  # in place: measurements draw millions


def values(
    M: int,
    d_v: int,
    *,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Draw M values of zero mean and equal length 1, (M, d_v).

    Directions are uniform, so the expected value is zero; the yardstick needs that, as values that share a
    component add up instead of averaging out. Arguments and errors are those of :func:`unit_keys`.
    """
    M, d_v = _checks.integer("M", M), _checks.integer("d_v", d_v)
    target = resolve(device)
    return _unit(_normal(M, d_v, generator_for(seed, generator), dtype)).to(target)


def shared_values(
    M: int,
    d_v: int,
    *,
    share: float,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Draw M values of length 1 with a common part, v = √ρ m + √(1 - ρ) u, (M, d_v).

    The unit vector m is one for all; each u is a random unit vector at right angles to it. So a share ρ of every
    value's energy is common to all, and the mean value is √ρ m instead of zero.

    Args:
        M: number of values, at least 1.
        d_v: value dimension, at least 1.
        share: ρ in [0, 1]; 1 gives one value M times.
        seed, generator, device, dtype: as in :func:`unit_keys`.

    Raises:
        ValueError: a share outside [0, 1], d_v = 1 with a share other than 1, and as for :func:`unit_keys`.
        TypeError: a share that is not a number, and as for :func:`unit_keys`.
    """
    M, d_v = _checks.integer("M", M), _checks.integer("d_v", d_v)
    rho = _checks.real("share", share, low=0.0, high=1.0)
    if d_v == 1 and rho != 1:
        raise ValueError(f"share must be 1 where d_v = 1, as no direction is orthogonal to the common one, got {rho:g}")
    target = resolve(device)
    both = _unit(_normal(M + 1, d_v, generator_for(seed, generator), dtype)).to(target)
    common, own = both[:1], both[1:]
    if rho == 1:
        return common.expand(M, d_v).clone()
    for _ in range(2):  # twice, as in noisy_queries
        own = _unit(own - (own @ common.T) * common)
    return math.sqrt(rho) * common + math.sqrt(1 - rho) * own


def gaussian_keys(
    M: int,
    d_k: int,
    *,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Draw M Gaussian keys of variance 1/d_k an entry: unit length on average only, (M, d_k).

    The exact law of the least-squares store is known for these. Arguments and errors are those of
    :func:`unit_keys`.
    """
    M, d_k = _checks.integer("M", M), _checks.integer("d_k", d_k)
    target = resolve(device)
    return (_normal(M, d_k, generator_for(seed, generator), dtype) / math.sqrt(d_k)).to(target)


def orthonormal_keys(
    M: int,
    d_k: int,
    *,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Draw M orthonormal keys, (M, d_k); at most d_k of them exist.

    Raises:
        ValueError: M above d_k, and as for :func:`unit_keys`.
        TypeError: as for :func:`unit_keys`.
    """
    M, d_k = _checks.integer("M", M), _checks.integer("d_k", d_k)
    if M > d_k:
        raise ValueError(f"M must be at most d_k, as only d_k orthonormal keys exist, got M = {M} and d_k = {d_k}")
    target = resolve(device)
    # Float64 on the CPU: MPS has no QR, and float32 would leave similarities of 1e-6 between the rows.
    gaussian = _normal(d_k, M, generator_for(seed, generator), dtype).cpu().double()
    q, r = torch.linalg.qr(gaussian)
    # QR fixes the sign of a column by convention; the sign of r makes the draw uniform.
    return (q * torch.sign(torch.diagonal(r))).T.contiguous().to(dtype).to(target)


def noisy_queries(
    keys: torch.Tensor,
    cosine: float,
    *,
    seed: int | None = None,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Draw one unit query per key, at the given cosine to it: q = c k + √(1 - c²) u with u ⟂ k.

    Args:
        keys: unit keys, (n, d_k).
        cosine: c in [-1, 1]; 1 returns the keys themselves.
        seed, generator: as in :func:`unit_keys`.

    Returns:
        Queries, (n, d_k), on the keys' device and of their dtype.

    Raises:
        ValueError: keys not unit length, a cosine outside [-1, 1], d_k = 1 with a cosine other than ±1.
        TypeError: keys not a floating-point tensor.
    """
    keys = _checks.matrix("keys", keys, "(n, d_k)")
    c = _checks.cosine(cosine)
    _checks.unit_rows("keys", keys, "a cosine is the similarity of unit vectors")
    n, d_k = keys.shape
    if d_k == 1 and abs(c) != 1:
        raise ValueError(f"cosine must be 1 or -1 where d_k = 1, as no direction is orthogonal to a key, got {c:g}")
    draw = generator_for(seed, generator)
    if abs(c) == 1:
        return c * keys
    noise = _normal(n, d_k, draw, keys.dtype).to(keys.device)
    for _ in range(2):  # twice: noise that happens to lie along the key leaves mostly rounding the first time
        noise = _unit(noise - (noise * keys).sum(-1, keepdim=True) * keys)
    return c * keys + math.sqrt(1 - c * c) * noise
