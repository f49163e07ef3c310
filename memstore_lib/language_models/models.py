"""Four language models that share one block and differ in its mixer, and the ablations that take them apart.

::

    block: x ← x + mixer(norm(x));  x ← x + down(silu(gate(norm(x))) · up(norm(x)))
    model: embedding, blocks, norm, and the embedding again as the output's weights
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from memstore_lib import _checks
from memstore_lib.language_models.mixers import AttentionMixer, DeltaMixer, head_size

EXPANSION = 2


@dataclass(frozen=True)
class Size:
    """How large a model is.

    Args:
        d_model: width of a row.
        layers: blocks.
        heads: memories or attention heads of a block; must divide d_model.
        vocabulary: tokens known.
        context: the longest sequence that a rotary table allows for.

    Raises:
        ValueError: an entry below 1, or heads that do not divide d_model.
        TypeError: an entry that is not an integer.
    """

    d_model: int
    layers: int
    heads: int
    vocabulary: int = 1024
    context: int = 2048

    def __post_init__(self) -> None:
        head_size(self.d_model, self.heads)
        for name in ("layers", "vocabulary", "context"):
            _checks.integer(name, getattr(self, name))


class GatedMLP(nn.Module):
    """A gated MLP (SwiGLU) of twice the model's width."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        hidden = EXPANSION * d_model
        self.gate, self.up = nn.Linear(d_model, hidden, bias=False), nn.Linear(d_model, hidden, bias=False)
        self.down = nn.Linear(hidden, d_model, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return rows of the shape of x, (batch, T, d_model)."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """RMS norm, mixer, residual; RMS norm, gated MLP, residual."""

    def __init__(self, d_model: int, mixer: nn.Module) -> None:
        super().__init__()
        self.mixer_norm, self.mixer = nn.RMSNorm(d_model, eps=1e-6), mixer
        self.mlp_norm, self.mlp = nn.RMSNorm(d_model, eps=1e-6), GatedMLP(d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return rows of the shape of x, (batch, T, d_model)."""
        x = x + self.mixer(self.mixer_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class LanguageModel(nn.Module):
    """Predicts the next token at each position.

    Args:
        size: how large it is.
        mixer: makes one block's mixer.

    Parameters are not drawn yet: :func:`build` makes a model and draws them.
    """

    def __init__(self, size: Size, mixer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.size = size
        self.embedding = nn.Embedding(size.vocabulary, size.d_model)
        self.blocks = nn.ModuleList(Block(size.d_model, mixer()) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.d_model, eps=1e-6)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of each next token.

        Args:
            tokens: (batch, T) integers, at least 0 and below the vocabulary's size.

        Returns:
            Logits, (batch, T, vocabulary).

        Raises:
            ValueError: a token outside the vocabulary, another shape, more tokens than a rotary table has rows.
            TypeError: tokens are not integers.
        """
        self._check(tokens)
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.embedding.weight.T

    def loss(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy in nats a token of predicting each next token; tokens: (batch, T + 1)."""
        logits = self(tokens[:, :-1])
        return functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten().long())

    def _check(self, tokens: torch.Tensor) -> None:
        if not isinstance(tokens, torch.Tensor) or tokens.dtype not in (torch.int64, torch.int32):
            came = tokens.dtype if isinstance(tokens, torch.Tensor) else type(tokens).__name__
            raise TypeError(f"tokens must be a tensor of int64 or int32, got {came}")
        if tokens.ndim != 2 or 0 in tokens.shape:
            raise ValueError(f"tokens must have shape (batch, T) without an empty axis, got {tuple(tokens.shape)}")
        if tokens.device.type == "cpu":  # elsewhere the look would wait for the device, and the corpus has looked
            low, high = tokens.aminmax()
            if low < 0 or high >= self.size.vocabulary:
                bad = int(low if low < 0 else high)
                raise ValueError(f"tokens must lie in [0, {self.size.vocabulary}), the vocabulary, got {bad}")

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw the parameters: matrices normal, with the variance 1/(3 inputs) of torch's own, embeddings 1/d_model.

        The fixed 0.02 that large models use is too small here: at d_model 128 a transformer then learns far slower.

        Args:
            generator: of the device that the parameters are on.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                module.weight.normal_(0, 1 / math.sqrt(3 * module.in_features), generator=generator)
            elif isinstance(module, nn.Embedding):
                module.weight.normal_(0, 1 / math.sqrt(self.size.d_model), generator=generator)
            elif isinstance(module, nn.RMSNorm):
                module.weight.fill_(1)
            elif hasattr(module, "initialise") and module is not self:
                module.initialise(generator)


def _delta(size: Size, **options: object) -> LanguageModel:
    return LanguageModel(size, functools.partial(DeltaMixer, size.d_model, size.heads, **options))


def _transformer(size: Size, **options: object) -> LanguageModel:
    return LanguageModel(size, functools.partial(AttentionMixer, size.d_model, size.heads, size.context, **options))


Factory = Callable[[Size], LanguageModel]

MODELS: dict[str, Factory] = {
    "Gated DeltaNet": _delta,
    "Gated DeltaNet, shifted keys": functools.partial(_delta, keys="shifted"),
    "transformer": _transformer,
    "transformer, shifted keys": functools.partial(_transformer, keys="shifted"),
}

ABLATIONS: dict[str, Factory] = {
    "Gated DeltaNet, no query or key projection, no shift": functools.partial(_delta, keys="unshifted"),
    "Gated DeltaNet, key is the shifted query": functools.partial(_delta, keys="shifted query"),
    "Gated DeltaNet, no value convolution": functools.partial(_delta, value_convolution=False),
    "Gated DeltaNet, shifted keys, no value convolution": functools.partial(
        _delta, keys="shifted", value_convolution=False
    ),
    "Gated DeltaNet, no projection, no shift, no value convolution": functools.partial(
        _delta, keys="unshifted", value_convolution=False
    ),
    "transformer, short convolutions": functools.partial(_transformer, convolutions=True),
    "transformer, no query or key projection, no shift": functools.partial(_transformer, keys="unshifted"),
    "transformer, key is the shifted query": functools.partial(_transformer, keys="shifted query"),
    "transformer, no rotary positions": functools.partial(_transformer, rotary=False),
    "transformer, shifted keys, no rotary positions": functools.partial(_transformer, keys="shifted", rotary=False),
}


def build(
    name: str, size: Size, *, seed: int | None = None, device: str | torch.device | None = "cpu"
) -> LanguageModel:
    """Build one of ``MODELS`` or ``ABLATIONS``.

    Args:
        name: which one.
        size: how large.
        seed: draws the parameters, on the CPU, so that every device starts alike. None only on the meta device.
        device: where the parameters are to lie; ``"meta"`` gives shapes without numbers.

    Raises:
        ValueError: an unknown name, a missing or negative seed, a size that does not fit the mixer.
    """
    factories = MODELS | ABLATIONS
    name = _checks.choice("name", name, factories)
    with torch.device("meta"):
        model = factories[name](size)
    if str(device) == "meta":
        return model
    if seed is None:
        raise ValueError("seed must be given unless the device is 'meta', got None")
    generator = torch.Generator().manual_seed(_checks.integer("seed", seed, minimum=0))
    model = model.to_empty(device="cpu")
    model.initialise(generator)
    return model.to(device)


def parameters(model: nn.Module) -> int:
    """Return the number of trained parameters; the embedding, used twice, counts once."""
    return sum(p.numel() for p in model.parameters())
