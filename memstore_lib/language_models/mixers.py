"""The parts in which the four models differ: how a token's row meets those before it.

::

    x   rows,     (batch, T, d_model)             q, k, v   (batch, heads, T, d_head)
    d_head = d_model / heads, the d_k and d_v of each head's memory

``keys`` says where queries and keys come from:

=================  ========================================  ============================
keys               query                                     key
=================  ========================================  ============================
"projected"        its own projection of x_t                 its own projection of x_t
"shifted"          x_t                                       x_{t-1}, zero at t = 0
"unshifted"        x_t                                       x_t
"shifted query"    its own projection of x_t                 the query of t - 1, zero at t = 0
=================  ========================================  ============================

Sources: Yang, Kautz and Hatamizadeh 2024, "Gated Delta Networks"; Su et al. 2021 (rotary positions); the note of the
shifted_gdn repository (shifted keys).
"""

from __future__ import annotations

import math
from typing import final

import torch
from torch import nn
from torch.nn import functional

from memstore_lib import _checks
from memstore_lib.delta_rule import chunked_unchecked

KEYS = ("projected", "shifted", "unshifted", "shifted query")
CONVOLUTION_WIDTH = 4


def head_size(d_model: int, heads: int) -> int:
    """Return d_model / heads.

    Raises:
        ValueError: the heads do not divide d_model.
        TypeError: not integers.
    """
    d_model, heads = _checks.integer("d_model", d_model), _checks.integer("heads", heads)
    if d_model % heads:
        raise ValueError(f"d_model must be a multiple of heads, got d_model {d_model} and {heads} heads")
    return d_model // heads


def shift(x: torch.Tensor) -> torch.Tensor:
    """Return rows moved one token on along axis -2, with zeros first: x_{t-1} at t. Shape as given."""
    return functional.pad(x, (0, 0, 1, 0))[..., :-1, :]


def cut_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Cut (batch, T, d_model) into (batch, heads, T, d_head)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: torch.Tensor) -> torch.Tensor:
    """Put (batch, heads, T, d_head) together as (batch, T, d_model)."""
    return x.transpose(1, 2).flatten(-2)


class ShortConvolution(nn.Module):
    """A causal convolution along tokens, one filter of width 4 with a bias for each channel; keeps the shape."""

    def __init__(self, d_model: int, width: int = CONVOLUTION_WIDTH) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model, width))
        self.bias = nn.Parameter(torch.empty(d_model))

    def initialise(self, generator: torch.Generator) -> None:
        """Draw weights and biases uniformly within ±1/√width, as torch does for its convolutions."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the filtered rows; the last weight meets the token itself. x: (batch, T, d_model)."""
        width, T = self.weight.shape[1], x.shape[1]
        padded = functional.pad(x, (0, 0, width - 1, 0))
        # A sum of shifted rows: on a CPU several times faster than a grouped convolution, forward and backward.
        out = self.bias + padded[:, width - 1 :] * self.weight[:, width - 1]
        for i in range(width - 1):
            out = out + padded[:, i : i + T] * self.weight[:, i]
        return out


class Mixer(nn.Module):
    """What both mixers share: where queries, keys and values come from."""

    def __init__(self, d_model: int, heads: int, keys: str, convolutions: tuple[str, ...]) -> None:
        super().__init__()
        self.d_head = head_size(d_model, heads)
        self.heads, self.keys = heads, _checks.choice("keys", keys, KEYS)
        self.q = nn.Linear(d_model, d_model, bias=False) if keys in ("projected", "shifted query") else None
        self.k = nn.Linear(d_model, d_model, bias=False) if keys == "projected" else None
        self.v = nn.Linear(d_model, d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)
        projected = {"q": self.q, "k": self.k, "v": self.v}
        self.convolutions = nn.ModuleDict(
            {name: ShortConvolution(d_model) for name in convolutions if projected[name] is not None}
        )

    def _filtered(self, name: str, projection: nn.Module, x: torch.Tensor) -> torch.Tensor:
        """Project, and where there is a short convolution, filter and bend by SiLU. Keeps the shape."""
        x = projection(x)
        return functional.silu(self.convolutions[name](x)) if name in self.convolutions else x

    def queries_and_keys(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return queries and keys, (batch, heads, T, d_head), before they are normalised or rotated."""
        q = self._filtered("q", self.q, x) if self.q is not None else x
        makes = {"projected": lambda: self._filtered("k", self.k, x), "unshifted": lambda: q}
        k = makes.get(self.keys, lambda: shift(q))()
        return cut_heads(q, self.heads), cut_heads(k, self.heads)

    def values(self, x: torch.Tensor) -> torch.Tensor:
        """Return values, (batch, heads, T, d_head)."""
        return cut_heads(self._filtered("v", self.v, x), self.heads)


@final
class DeltaMixer(Mixer):
    """A memory per head under the gated delta rule.

    Queries and keys have unit length, and queries are divided by √d_head; β = sigmoid(b(x)) and
    g = -A softplus(a(x) + dt_bias) are projected for each head; what is recalled is RMS-normalised per head, gated by
    SiLU and projected.

    Args:
        d_model, heads: width and number of memories.
        keys: one of the module's table.
        value_convolution: whether values pass a short convolution and SiLU. Projected queries and keys always do.
        chunk: rows that :func:`memstore_lib.delta_rule.chunked` takes at a time.

    Raises:
        ValueError: heads do not divide d_model, an unknown ``keys``, a chunk below 1.
    """

    def __init__(
        self, d_model: int, heads: int, *, keys: str = "projected", value_convolution: bool = True, chunk: int = 64
    ) -> None:
        super().__init__(d_model, heads, keys, ("q", "k", "v") if value_convolution else ("q", "k"))
        self.chunk = _checks.integer("chunk", chunk)
        self.a, self.b = nn.Linear(d_model, heads, bias=False), nn.Linear(d_model, heads, bias=False)
        self.A_log, self.dt_bias = nn.Parameter(torch.empty(heads)), nn.Parameter(torch.empty(heads))
        self.gate = nn.Linear(d_model, d_model, bias=False)
        self.norm = nn.RMSNorm(self.d_head, eps=1e-6)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw A uniformly in (0, 16), and dt_bias so that its softplus is log-uniform in [1e-3, 1e-1]."""
        draw = torch.rand(2, self.heads, generator=generator)
        with torch.no_grad():
            self.A_log.copy_((16 * draw[0].clamp_min(1e-4)).log())
            dt = torch.exp(math.log(1e-3) + draw[1] * math.log(1e2))
            self.dt_bias.copy_(dt + torch.log(-torch.expm1(-dt)))  # the inverse of softplus

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the memories recall, (batch, T, d_model), for rows x of that shape."""
        q, k = self.unit_queries_and_keys(x)
        beta = self.b(x).sigmoid().transpose(1, 2)
        # In float32 whatever the rest is in: small decays add up over thousands of tokens.
        g = -(self.A_log.float().exp() * functional.softplus(self.a(x).float() + self.dt_bias.float())).transpose(1, 2)
        o, _ = chunked_unchecked(q / math.sqrt(self.d_head), k, self.values(x), beta, g, chunk=self.chunk)
        return self.out(join_heads(self.norm(o)) * functional.silu(self.gate(x)))

    def unit_queries_and_keys(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return queries and keys of unit length, (batch, heads, T, d_head); a zero key stays zero."""
        q, k = self.queries_and_keys(x)
        return functional.normalize(q, dim=-1, eps=1e-6), functional.normalize(k, dim=-1, eps=1e-6)


@final
class AttentionMixer(Mixer):
    """Causal softmax attention, with rotary positions.

    Args:
        d_model, heads: width and number of heads.
        context: the longest sequence, the length of the rotary table.
        keys: one of the module's table.
        convolutions: whether queries, keys and values that have a projection pass a short convolution and SiLU.
        rotary: whether queries and keys are rotated by their positions.

    Raises:
        ValueError: heads do not divide d_model, an odd d_head with rotary positions, an unknown ``keys``.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        context: int,
        *,
        keys: str = "projected",
        convolutions: bool = False,
        rotary: bool = True,
    ) -> None:
        super().__init__(d_model, heads, keys, ("q", "k", "v") if convolutions else ())
        self.context, self.rotary = _checks.integer("context", context), rotary
        if rotary and self.d_head % 2:
            raise ValueError(
                f"d_model / heads must be even for rotary positions, got {d_model} / {heads} = {self.d_head}"
            )
        if rotary:
            self.register_buffer("angles", rotary_table(context, self.d_head), persistent=False)

    def initialise(self, generator: torch.Generator) -> None:
        """Fill the rotary table; nothing is drawn."""
        if self.rotary:
            self.angles.copy_(rotary_table(self.context, self.d_head))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what is attended to, (batch, T, d_model), for rows x of that shape.

        Raises:
            ValueError: more tokens than the rotary table has rows.
        """
        q, k = self.queries_and_keys(x)
        if self.rotary:
            if x.shape[1] > self.context:
                raise ValueError(
                    f"tokens must hold at most {self.context} positions, the rows of the rotary table, got {x.shape[1]}"
                )
            q, k = rotate(q, self.angles), rotate(k, self.angles)
        o = functional.scaled_dot_product_attention(q, k, self.values(x), is_causal=True)
        return self.out(join_heads(o))


def rotary_table(context: int, d_head: int, base: float = 10_000.0) -> torch.Tensor:
    """Return the angles t base^(-2i / d_head) as (cosine, sine), (2, context, d_head / 2)."""
    rates = base ** (-torch.arange(0, d_head, 2, dtype=torch.float64) / d_head)
    angles = torch.arange(context, dtype=torch.float64)[:, None] * rates
    return torch.stack([angles.cos(), angles.sin()]).float()


def rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Turn the pair (i, i + d_head/2) of row t by the table's angle. x: (..., T, d_head)."""
    cos, sin = angles[:, : x.shape[-2]].to(x.dtype)
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)
