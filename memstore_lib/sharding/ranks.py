"""The processes of one measurement: one alone, or several that torchrun has started.

They share three things only: who takes which blocks, what the first of them says, and a sum.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta

import torch
import torch.distributed as dist

from memstore_lib import _checks
from memstore_lib.device import resolve

#: Seconds that a rank waits for the others.
PATIENCE = 300.0


class LostContact(RuntimeError):
    """Another rank does not answer: it has died, or hangs."""


class FirstFailed(RuntimeError):
    """Rank 0 has failed, and has said why; the others need not say it again."""


class Ranks:
    """One process alone, and what several have in common.

    Attributes:
        rank: number of this process, from 0.
        size: number of processes.
        device: where this one computes.
    """

    def __init__(self, device: torch.device, rank: int = 0, size: int = 1) -> None:
        self.device, self.rank, self.size = device, rank, size
        self._claims: Counter[str] = Counter()

    def claim(self, name: str) -> int:
        """Return the next number of a count from 0, which no other rank gets."""
        self._claims[name] += 1
        return self._claims[name] - 1

    def first(self, function: Callable[[], object]) -> object:
        """Return, on every rank, what a function returns on rank 0, where alone it is called; JSON can hold it.

        Raises:
            FirstFailed: on the other ranks, where the function raises on rank 0.
        """
        return json.loads(json.dumps(function()))

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the sum of the ranks' tensors, exact for integers; on every rank."""
        return tensor

    def largest(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the largest of the ranks' entries at each place; on every rank."""
        return tensor


class Torchrun(Ranks):
    """One of several processes, over a store and a process group."""

    def __init__(self, device: torch.device, store: dist.Store, rank: int, size: int) -> None:
        super().__init__(device, rank, size)
        self._store, self._said = store, 0

    def claim(self, name: str) -> int:  # noqa: D102
        with _answered():
            return self._store.add(f"claim/{name}", 1) - 1

    def first(self, function: Callable[[], object]) -> object:  # noqa: D102
        self._said += 1
        key = f"first/{self._said}"
        if self.rank == 0:
            try:
                said = {"said": function()}
            except BaseException as error:
                self._store.set(key, json.dumps({"failed": str(error)}))
                raise
            self._store.set(key, json.dumps(said))
            return json.loads(json.dumps(said))["said"]
        with _answered():
            said = json.loads(self._store.get(key).decode())
        if "failed" in said:
            raise FirstFailed(f"rank 0 has failed: {said['failed']}")
        return said["said"]

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return self._reduced(tensor, dist.ReduceOp.SUM)

    def largest(self, tensor: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return self._reduced(tensor, dist.ReduceOp.MAX)

    def _reduced(self, tensor: torch.Tensor, how: dist.ReduceOp) -> torch.Tensor:
        """Reduce a copy that lies where the backend can reach it."""
        place = self.device if dist.get_backend() == "nccl" else torch.device("cpu")
        copied = tensor.to(place, copy=True).contiguous()
        with _answered():
            dist.all_reduce(copied, op=how)
        return copied.to(tensor.device)


@contextlib.contextmanager
def _answered() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # of every store and backend, for a closed connection and for a timeout
        raise LostContact(f"lost contact with another rank, which has died or hangs ({_reason(error)})") from error


def _reason(error: Exception) -> str:
    """Return the first line of what torch says; frames of its C++ follow."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _backend(wish: str | None, device: torch.device) -> str:
    """Return the backend of a process group, refusing what this torch or this device does not have."""
    if not dist.is_available():
        raise ValueError("torchrun needs a torch with torch.distributed, which this one lacks: run one process alone")
    there = {"gloo": dist.is_gloo_available(), "nccl": dist.is_nccl_available()}
    if wish is None:
        wish = "nccl" if device.type == "cuda" and there["nccl"] else "gloo"
    _checks.choice("backend", wish, there)
    if not there[wish]:
        raise ValueError(f"backend {wish} is missing in this build of torch; there is {_names(there)}")
    if wish == "nccl" and device.type != "cuda":
        raise ValueError(f"backend nccl needs a CUDA device for each rank, got {device}: use gloo")
    return wish


def _names(there: dict[str, bool]) -> str:
    return ", ".join(name for name, found in there.items() if found) or "none"


def _own_device(device: str | torch.device | None, local_rank: int) -> torch.device:
    """Return the device of one of several ranks of a machine: where they are CUDA's, each has its own."""
    found = resolve(device)
    if found.type != "cuda" or found.index is not None:
        return found
    if local_rank >= torch.cuda.device_count():
        raise ValueError(
            f"each rank needs a CUDA device of its own, got {torch.cuda.device_count()} for local rank {local_rank}: "
            "start fewer ranks, or use the device cpu"
        )
    return torch.device("cuda", local_rank)


@contextlib.contextmanager
def opened(
    device: str | torch.device | None = None, *, backend: str | None = None, patience: float = PATIENCE
) -> Iterator[Ranks]:
    """Meet the other processes that torchrun has started; without torchrun there are none.

    Args:
        device: where to compute; None for the default device. Ranks on "cuda" take a device each.
        backend: gloo or nccl; None takes NCCL on CUDA and gloo elsewhere.
        patience: seconds after which a rank that waits for another one gives up.

    Raises:
        ValueError: a device or a backend that is not there.
        LostContact: the others do not come.
    """
    patience = _checks.real("patience", patience, low=0.0, high=1e9, open_low=True)
    if ("RANK" in os.environ) != ("WORLD_SIZE" in os.environ):
        raise ValueError("RANK and WORLD_SIZE must both be set, as torchrun does, or neither; one of them is")
    if "RANK" not in os.environ:
        if backend is not None:
            _checks.choice("backend", backend, ("gloo", "nccl"))
        yield Ranks(resolve(device))
        return
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"):
        if not os.environ.get(name, "0").isdecimal():
            raise ValueError(f"{name} must be a whole number, as torchrun sets it, got {os.environ[name]!r}")
    own = _own_device(device, int(os.environ.get("LOCAL_RANK", "0")))
    backend, wait = _backend(backend, own), timedelta(seconds=patience)
    if own.type == "cuda":
        torch.cuda.set_device(own)
    try:
        store, rank, size = next(dist.rendezvous("env://", timeout=wait))
    except (RuntimeError, ValueError) as error:
        where = f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"
        raise LostContact(f"the ranks cannot meet at MASTER_ADDR:MASTER_PORT = {where} ({_reason(error)})") from error
    with _answered():
        store.set_timeout(wait)
        dist.init_process_group(
            backend, store=dist.PrefixStore("group", store), rank=rank, world_size=size, timeout=wait
        )
    yield Torchrun(own, dist.PrefixStore("memstore", store), rank, size)
    dist.destroy_process_group()
