"""How well the keys of a trained model use their space: per layer and head, on real text.

A linear memory confuses keys that are alike. For the keys of one sequence, (T, d_k), with singular values σ:

=====================  =====================================================================================
column                 what it is
=====================  =====================================================================================
rank_above_1_percent   how many σ lie above 1 % of the largest: the source's effective rank
rank_entropy           e^H of p = σ / Σσ: the effective rank of Roy and Vetterli 2007
mean_abs_cosine        mean absolute cosine of two different keys; a zero key is in no pair
condition              largest σ over the smallest of min(T, d_k); infinity where that is 0 to rounding
=====================  =====================================================================================

The shifted model's first key is zero by definition. In the first layer the others are normalised embeddings; ``first``
says whether the key at position 0 is among those measured.
"""

from __future__ import annotations

import math

import pandas as pd
import torch

from memstore_lib import _checks
from memstore_lib.language_models.mixers import DeltaMixer
from memstore_lib.language_models.models import LanguageModel


def of_keys(keys: torch.Tensor) -> dict[str, float]:
    """Return the four measures of keys.

    Args:
        keys: (T, d_k), at least two of them; rows may be zero, but not all.

    Raises:
        ValueError: another shape, fewer than two keys, NaN or infinity, keys that are all zero.
        TypeError: not a floating-point tensor.
    """
    keys = _checks.matrix("keys", keys, "(T, d_k)").detach().double().cpu()
    if len(keys) < 2:
        raise ValueError(f"keys must hold at least two rows, got shape {tuple(keys.shape)}")
    sizes = torch.linalg.svdvals(keys)
    if sizes[0] == 0:
        raise ValueError(f"keys must not all be zero, got shape {tuple(keys.shape)} of zeros")
    shares = sizes / sizes.sum()
    # Keys come in float32: what lies below its rounding is a zero.
    smallest = sizes[-1] if sizes[-1] > sizes[0] * max(keys.shape) * torch.finfo(torch.float32).eps else 0.0
    return {
        "rank_above_1_percent": float((sizes > 0.01 * sizes[0]).sum()),
        "rank_entropy": float(torch.special.entr(shares).sum().exp()),
        "mean_abs_cosine": _mean_abs_cosine(keys),
        "condition": float(sizes[0] / smallest) if smallest else math.inf,
    }


def _mean_abs_cosine(keys: torch.Tensor) -> float:
    lengths = keys.norm(dim=1)
    unit = keys[lengths > 0] / lengths[lengths > 0, None]
    n = len(unit)
    if n < 2:
        return float("nan")
    return float(((unit @ unit.T).abs().sum() - n) / (n * (n - 1)))


@torch.no_grad()
def keys_of(model: LanguageModel, tokens: torch.Tensor) -> list[torch.Tensor]:
    """Return the keys that each layer writes with, (batch, heads, T, d_k) for each layer.

    Args:
        model: one whose mixers follow the delta rule.
        tokens: (batch, T).

    Raises:
        TypeError: a model without such mixers.
        ValueError: as the model's.
    """
    mixers = [block.mixer for block in model.blocks]
    if not all(isinstance(mixer, DeltaMixer) for mixer in mixers):
        raise TypeError(f"model must have mixers of the delta rule, got {type(mixers[0]).__name__}")
    found: list[torch.Tensor] = []
    hooks = [
        mixer.register_forward_pre_hook(lambda mixer, given: found.append(mixer.unit_queries_and_keys(given[0])[1]))
        for mixer in mixers
    ]
    try:
        model(tokens)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def measure(model: LanguageModel, tokens: torch.Tensor) -> pd.DataFrame:
    """Measure the keys of each layer and head, with and without the key at position 0.

    Args:
        model: one whose mixers follow the delta rule.
        tokens: (batch, T), T at least 3; each sequence is measured by itself.

    Returns:
        A tidy table: layer (from 0), head, sequence, first ("with" or "without"), and the module's four columns.

    Raises:
        TypeError: a model without memories.
        ValueError: fewer than three tokens, or as the model's.
    """
    if isinstance(tokens, torch.Tensor) and tokens.ndim == 2 and tokens.shape[1] < 3:
        raise ValueError(f"tokens must have shape (batch, T) with T at least 3, got {tuple(tokens.shape)}")
    rows = []
    for layer, keys in enumerate(keys_of(model, tokens)):
        for sequence in range(keys.shape[0]):
            for head in range(keys.shape[1]):
                for first, start in (("with", 0), ("without", 1)):
                    measures = of_keys(keys[sequence, head, start:])
                    rows.append({"layer": layer, "head": head, "sequence": sequence, "first": first, **measures})
    return pd.DataFrame(rows)
