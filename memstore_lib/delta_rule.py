"""The gated delta rule: a linear memory that looks at what it already recalls before it writes.

::

    S   state,   (batch, heads, d_k, d_v)   the memory, the transpose of chapter 1's W
    q   queries, (batch, heads, T, d_k)     k  keys, (batch, heads, T, d_k)
    v   values,  (batch, heads, T, d_v)     o  outputs, (batch, heads, T, d_v)
    β   beta,    (batch, heads, T)          how much of a write is done
    g   g,       (batch, heads, T), g ≤ 0   the logarithm of the decay before a write

One step, for each t:  S ← e^g S;  S ← S + k ⊗ β (v - Sᵀk);  o = Sᵀq.

Rows of one family, from the first chapter's store on:

=====================  ========  =======
memory                 write     g
=====================  ========  =======
summed outer products  "hebb"    0
with decay             "hebb"    below 0
delta rule             "delta"   0
gated delta rule       "delta"   below 0
=====================  ========  =======

:func:`recurrence` is the plain reference. :func:`chunked` gives the same numbers and gradients by products of matrices.

Sources: Widrow and Hoff 1960 (delta rule); Schlag, Irie and Schmidhuber 2021 (as a fast-weight memory); Yang, Kautz and
Hatamizadeh 2024, "Gated Delta Networks" (with decay); Yang et al. 2024 (the chunked form).
"""

from __future__ import annotations

import torch
from torch.nn import functional

from memstore_lib import _checks

WRITES = ("delta", "hebb")

# Below these e^g is 0 in the dtype at hand, and so is its derivative. Cutting there keeps sums of g precise.
_NO_DECAY_BELOW = {torch.float32: -120.0, torch.float64: -800.0}


def recurrence(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    beta: torch.Tensor,
    g: torch.Tensor,
    state: torch.Tensor | None = None,
    *,
    write: str = "delta",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run the rule token by token: the reference that :func:`chunked` is measured against.

    Args:
        q: queries, (batch, heads, T, d_k), with T at least 1. No scaling is applied.
        k: keys, (batch, heads, T, d_k), of any length; unit keys make the delta rule exact at β = 1.
        v: values, (batch, heads, T, d_v).
        beta: how much of each write is done, (batch, heads, T).
        g: logarithm of the decay, (batch, heads, T), at most 0.
        state: the memory to start from, (batch, heads, d_k, d_v); empty if None.
        write: ``"delta"`` writes v - Sᵀk, ``"hebb"`` writes v.

    Returns:
        Outputs, (batch, heads, T, d_v), of v's dtype, and the final state, (batch, heads, d_k, d_v), in float32 or, if
        any input is float64, in float64.

    Raises:
        ValueError: shapes that disagree, an empty axis, NaN or infinity, g above 0, an unknown write.
        TypeError: not floating-point tensors, or q, k and v of different dtypes.
    """
    _check(q, k, v, beta, g, state, write)
    dtype = _working_dtype(q, k, v, beta, g, state)
    out_dtype = v.dtype
    q, k, v, beta, g = (x.to(dtype) for x in (q, k, v, beta, g))
    S = _start(k, v, state, dtype)
    outputs = []
    for t in range(q.shape[2]):
        k_t, v_t = k[:, :, t], v[:, :, t]
        S = g[:, :, t].exp()[..., None, None] * S
        new = v_t - (S.transpose(-1, -2) @ k_t[..., None])[..., 0] if write == "delta" else v_t
        S = S + k_t[..., :, None] * (beta[:, :, t, None] * new)[..., None, :]
        outputs.append((S.transpose(-1, -2) @ q[:, :, t, :, None])[..., 0])
    return torch.stack(outputs, dim=2).to(out_dtype), S


def chunked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    beta: torch.Tensor,
    g: torch.Tensor,
    state: torch.Tensor | None = None,
    *,
    write: str = "delta",
    chunk: int = 32,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run the rule chunk by chunk: equal to :func:`recurrence` in values and gradients, and fast to train.

    Within a chunk the writes u_i = β_i (v_i - Sᵀk_i) depend on one another through a triangular matrix,
    (I + A) u = β (v - e^G S₀ᵀk) with A_ij = β_i e^{G_i - G_j} k_i·k_j for j < i and G the running sum of g. Its inverse
    is had for all chunks at once; only the state goes from chunk to chunk.

    Args:
        q, k, v, beta, g, state, write: as in :func:`recurrence`.
        chunk: rows a chunk holds, at least 1; any number, not only divisors of T.

    Returns:
        Outputs and final state, as :func:`recurrence`.

    Raises:
        ValueError, TypeError: as :func:`recurrence`; a chunk below 1 or not an integer.
    """
    chunk = _checks.integer("chunk", chunk)
    _check(q, k, v, beta, g, state, write)
    return chunked_unchecked(q, k, v, beta, g, state, write=write, chunk=chunk)


def chunked_unchecked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    beta: torch.Tensor,
    g: torch.Tensor,
    state: torch.Tensor | None = None,
    *,
    write: str = "delta",
    chunk: int = 32,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Do what :func:`chunked` does without looking at the arguments: for a layer that made them itself."""
    dtype = _working_dtype(q, k, v, beta, g, state)
    T, out_dtype = q.shape[2], v.dtype
    S = _start(k, v, state, dtype)
    chunk = min(chunk, T)
    # Padding writes nothing: key 0, β 0, no decay.
    q, k, v = (_chunks(x.to(dtype), chunk) for x in (q, k, v))  # (batch, heads, n, chunk, d)
    beta, g = (_chunks(x.to(dtype)[..., None], chunk) for x in (beta, g))  # (batch, heads, n, chunk, 1)
    since, between, left = _decays(g[..., 0])
    mine = (q @ k.transpose(-1, -2)) * between
    if write == "delta":
        A = (beta * k) @ k.transpose(-1, -2) * between
        T_inverse = _UnitLowerInverse.apply(A)
        fresh, seen = T_inverse @ (beta * v), T_inverse @ (beta * since * k)
    else:
        fresh, seen = beta * v, None
    # Unbound, not indexed: the gradient of an index is as large as all chunks together.
    along = [x.unbind(2) for x in (fresh, since * q, (left * k).mT, since[..., -1:, :])]
    erased = seen.unbind(2) if seen is not None else None
    writes, found = [], []
    for n, (u, asked, kept, whole) in enumerate(zip(*along, strict=True)):
        if erased is not None:
            u = u - erased[n] @ S
        found.append(asked @ S)
        writes.append(u)
        S = whole * S + kept @ u
    o = torch.stack(found, dim=2) + mine @ torch.stack(writes, dim=2)
    return o.flatten(2, 3)[:, :, :T].to(out_dtype), S


def _chunks(x: torch.Tensor, chunk: int) -> torch.Tensor:
    """Cut (batch, heads, T, d) into (batch, heads, n, chunk, d), padded with zeros."""
    padding = -x.shape[2] % chunk
    if padding:
        x = functional.pad(x, (0, 0, 0, padding))
    return x.unflatten(2, (-1, chunk))


def _decays(g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the decays since a chunk's start, between its rows, and to its end, for g, (..., chunk).

    With running sums G they are e^G, (..., chunk, 1); e^{G_i - G_j} for j ≤ i and 0 elsewhere, (..., chunk, chunk);
    and e^{G_C - G}, (..., chunk, 1).
    """
    dtype = g.dtype
    g = g.clamp_min(_NO_DECAY_BELOW[dtype])
    # A difference of two large sums has lost digits in float32; MPS has nothing longer.
    G = (g if g.device.type == "mps" else g.double()).cumsum(-1)
    gap = (G[..., :, None] - G[..., None, :]).to(dtype)
    above = torch.ones(gap.shape[-2:], dtype=torch.bool, device=g.device).triu(1)
    # Masked before the exponential: above the diagonal it could overflow, and infinity times 0 is NaN in a gradient.
    between = gap.masked_fill(above, float("-inf")).exp()
    return G.to(dtype).exp()[..., None], between, (G[..., -1:] - G).to(dtype).exp()[..., None]


class _UnitLowerInverse(torch.autograd.Function):
    """Inverse of I + the strictly lower triangle of A, (..., C, C), by blocks that double: no loop over rows."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, A: torch.Tensor) -> torch.Tensor:
        inverse = _unit_lower_inverse(A)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> torch.Tensor:
        (inverse,) = ctx.saved_tensors
        return -(inverse.mT @ gradient @ inverse.mT).tril(-1)


def _unit_lower_inverse(A: torch.Tensor) -> torch.Tensor:
    """Return (I + tril(A, -1))⁻¹: the inverse of [[P, 0], [B, Q]] is [[P⁻¹, 0], [-Q⁻¹ B P⁻¹, Q⁻¹]]."""
    C = A.shape[-1]
    size = 1 << (C - 1).bit_length()
    if size != C:
        A = functional.pad(A, (0, size - C, 0, size - C))
    inverse = torch.eye(size, dtype=A.dtype, device=A.device).expand(A.shape).contiguous()
    half = 1
    while half < size:
        # Views of the blocks on the diagonal: (..., size / 2 half, 2 half, 2 half).
        blocks, of_A = _diagonal_blocks(inverse, 2 * half), _diagonal_blocks(A, 2 * half)
        P, Q, B = blocks[..., :half, :half], blocks[..., half:, half:], of_A[..., half:, :half]
        blocks[..., half:, :half] = -B if half == 1 else -(Q @ B @ P)
        half *= 2
    return inverse[..., :C, :C]


def _diagonal_blocks(X: torch.Tensor, size: int) -> torch.Tensor:
    """View the size × size blocks on the diagonal of X, (..., N, N), as (..., N / size, size, size)."""
    cut = X.unflatten(-1, (-1, size)).unflatten(-3, (-1, size))  # (..., rows, size, columns, size)
    return cut.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)


def _start(k: torch.Tensor, v: torch.Tensor, state: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    if state is not None:
        return state.to(dtype)
    return torch.zeros(*k.shape[:2], k.shape[-1], v.shape[-1], dtype=dtype, device=k.device)


def _working_dtype(*tensors: torch.Tensor | None) -> torch.dtype:
    """Return float32 at least: sums of g and the state lose too much in 16 bits."""
    dtype = torch.float32
    for tensor in tensors:
        if tensor is not None:
            dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def _check(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    beta: torch.Tensor,
    g: torch.Tensor,
    state: torch.Tensor | None,
    write: str,
) -> None:
    _checks.choice("write", write, WRITES)
    given = {"q": q, "k": k, "v": v, "beta": beta, "g": g} | ({} if state is None else {"state": state})
    for name, tensor in given.items():
        _checks.floating(name, tensor)
        if tensor.device != q.device:
            raise ValueError(f"{name} must be on the device of q, {q.device}, got {tensor.device}")
    if q.ndim != 4 or 0 in q.shape:
        raise ValueError(f"q must have shape (batch, heads, T, d_k) without an empty axis, got {tuple(q.shape)}")
    if v.ndim != 4 or 0 in v.shape:
        raise ValueError(f"v must have shape (batch, heads, T, d_v) without an empty axis, got {tuple(v.shape)}")
    _checks.same_kind("k", k, "q", q)
    _checks.same_kind("v", v, "q", q)
    batch, heads, T, d_k = q.shape
    expected = {
        "k": (k, "(batch, heads, T, d_k)", (batch, heads, T, d_k)),
        "v": (v, "(batch, heads, T, d_v)", (batch, heads, T, v.shape[-1])),
        "beta": (beta, "(batch, heads, T)", (batch, heads, T)),
        "g": (g, "(batch, heads, T)", (batch, heads, T)),
    }
    if state is not None:
        expected["state"] = (state, "(batch, heads, d_k, d_v)", (batch, heads, d_k, v.shape[-1]))
    for name, (tensor, axes, shape) in expected.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} must have shape {axes} = {shape} like q, got {tuple(tensor.shape)}")
    if bool((g > 0).any()):
        raise ValueError(f"g must be at most 0 for a decay e^g of at most 1, got {g.max().item():.4g}")
