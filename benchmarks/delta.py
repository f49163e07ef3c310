"""What the chunked form of the delta rule saves, beside the recurrence and a chunked form that loops over rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from benchmarks.rows import Row, alternate, ratio
from memstore_lib.delta_rule import chunked, recurrence
from memstore_lib.device import one_thread

BATCH, T, D, HEADS = 4, 512, 256, 4


def row_loop(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor, g: torch.Tensor, chunk: int = 64
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run the gated delta rule with the triangular system solved by substitution, a row of a chunk at a time.

    The obvious chunked form, and the usual one where no fused kernel is at hand. T must be a multiple of the chunk.
    """
    q, k, v = (x.unflatten(2, (-1, chunk)) for x in (q, k, v))
    beta, g = beta.unflatten(2, (-1, chunk))[..., None], g.unflatten(2, (-1, chunk))
    G = g.cumsum(-1)
    between = (G[..., :, None] - G[..., None, :]).tril().exp().tril()
    k_beta = k * beta
    rows = -(k_beta @ k.mT * between).tril(-1)
    for i in range(1, chunk):
        row, above = rows[..., i, :i].clone(), rows[..., :i, :i].clone()
        rows[..., i, :i] = row + (row[..., None] * above).sum(-2)
    inverse = rows + torch.eye(chunk, dtype=rows.dtype, device=rows.device)
    fresh, seen = inverse @ (v * beta), inverse @ (k_beta * G.exp()[..., None])
    S, found = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1]), []
    for n in range(q.shape[2]):
        q_n, k_n, G_n = q[:, :, n], k[:, :, n], G[:, :, n]
        u = fresh[:, :, n] - seen[:, :, n] @ S
        found.append((q_n * G_n.exp()[..., None]) @ S + (q_n @ k_n.mT * between[:, :, n]) @ u)
        left = (G_n[..., -1:] - G_n).exp()[..., None]
        S = G_n[..., -1, None, None].exp() * S + (k_n * left).mT @ u
    return torch.cat(found, dim=2), S


def inputs(seed: int) -> list[torch.Tensor]:
    """Return q, k, v, β and g as a layer makes them, as leaves that want gradients."""
    draw = torch.Generator().manual_seed(seed)
    shape = (BATCH, HEADS, T, D // HEADS)
    q, k = (functional.normalize(torch.randn(shape, generator=draw), dim=-1) for _ in range(2))
    v = torch.randn(shape, generator=draw)
    beta, g = torch.rand(shape[:3], generator=draw), -torch.rand(shape[:3], generator=draw)
    return [x.requires_grad_() for x in (q, k, v, beta, g)]


def run(form: Callable[..., tuple[torch.Tensor, torch.Tensor]], tensors: list[torch.Tensor]) -> None:
    """Run forward and backward."""
    form(*tensors)[0].square().sum().backward()


@one_thread()
def rows(runs: int = 7) -> list[Row]:
    """Return the ratios.

    Raises:
        AssertionError: a contestant does not compute the same.
    """
    forms = {"chunked": chunked, "row loop": row_loop, "recurrence": recurrence}
    with torch.no_grad():
        outputs = [form(*inputs(0))[0] for form in forms.values()]
    for other in outputs[1:]:
        torch.testing.assert_close(other, outputs[0], rtol=1e-4, atol=1e-4)
    drawn = [inputs(seed) for seed in range(runs + 1)]
    taken = alternate({name: lambda seed, form=form: run(form, drawn[seed]) for name, form in forms.items()}, runs)
    return [
        ratio("delta rule", f"{name} / chunked", taken[name], taken["chunked"]) for name in ("row loop", "recurrence")
    ]
