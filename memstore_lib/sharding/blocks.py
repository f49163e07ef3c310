"""Keys by block: the keys of a block depend on its number alone, so any process can draw any block.

::

    seed → replicate → block → keys, (block size, d)

Block b of a replicate starts a generator of its own at a seed made from b. Who draws it, when, and after what does not
matter: a measurement gives the same counts on one process and on many.
"""

from __future__ import annotations

import functools

import numpy as np
import torch

from memstore_lib import _checks, memories

#: Keys of one block.
BLOCK = 4096
#: Blocks of one replicate, as many as torch's CPU generator tells seeds apart.
MOST = 1 << 32


def block_seed(seed: int, replicate: int, block: int) -> int:
    """Return the 32-bit seed of a block, another one for each block of a replicate.

    Torch reads 32 bits of a seed on the CPU. A hash of (seed, replicate, block) would meet itself after some 2¹⁶
    blocks, and the same keys would be counted twice. So the block's number goes through steps that can each be undone
    (the finalizer of MurmurHash3, twice), between keys made from seed and replicate: 2³² blocks have 2³² seeds.

    Raises:
        ValueError: seed, replicate or block below 0, or a block from 2³² on.
        TypeError: one of them not an integer.
    """
    block = _checks.integer("block", block, minimum=0, maximum=MOST - 1)
    x = block
    for key in _between(_checks.integer("seed", seed, minimum=0), _checks.integer("replicate", replicate, minimum=0)):
        x ^= key
        x = (x ^ x >> 16) * 0x85EBCA6B & 0xFFFFFFFF
        x = (x ^ x >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
        x ^= x >> 16
    return x


@functools.lru_cache(maxsize=64)
def _between(seed: int, replicate: int) -> tuple[int, ...]:
    return tuple(map(int, np.random.SeedSequence([seed, replicate]).generate_state(2, np.uint32)))


def keys(seed: int, replicate: int, block: int, d: int, *, size: int = BLOCK, device: torch.device) -> torch.Tensor:
    """Draw the unit keys of one block, (size, d).

    A CUDA device draws them itself, which is faster than copying them there and gives other keys than the CPU; any
    other device gets those of the CPU.
    """
    source = device if device.type == "cuda" else torch.device("cpu")
    generator = torch.Generator(device=source).manual_seed(block_seed(seed, replicate, block))
    return memories.unit_keys(size, d, generator=generator, device=device)


def bank(seed: int, replicate: int, queries: int, d: int, *, device: torch.device) -> torch.Tensor:
    """Draw the queries of one replicate, (queries, d)."""
    return memories.unit_keys(queries, d, generator=memories.replicate_generator(seed, replicate), device=device)
