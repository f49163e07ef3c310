"""Ranks that are threads of this process: what several processes do, without the seconds of starting them."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable

import torch

from memstore_lib.sharding.ranks import FirstFailed, LostContact, Ranks

CPU = torch.device("cpu")


class _Crew:
    def __init__(self, size: int) -> None:
        self.size, self.lock, self.barrier = size, threading.Lock(), threading.Barrier(size)
        self.claims: Counter[str] = Counter()
        self.slots: list = [None] * size


class _Member(Ranks):
    def __init__(self, crew: _Crew, rank: int) -> None:
        super().__init__(CPU, rank, crew.size)
        self.crew = crew

    def claim(self, name: str) -> int:
        with self.crew.lock:
            self.crew.claims[name] += 1
            return self.crew.claims[name] - 1

    def _together(self, mine: object) -> list:
        self.crew.slots[self.rank] = mine
        try:
            self.crew.barrier.wait(60)
            found = list(self.crew.slots)
            self.crew.barrier.wait(60)
        except threading.BrokenBarrierError as error:
            raise LostContact("another thread has failed") from error
        return found

    def first(self, function: Callable[[], object]) -> object:
        said = json.dumps(function()) if self.rank == 0 else None
        try:
            return json.loads(self._together(said)[0])
        except LostContact:
            raise FirstFailed("rank 0 has failed") from None

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.stack(self._together(tensor)).sum(0)

    def largest(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.stack(self._together(tensor)).amax(0)


def run(size: int, work: Callable[[Ranks], object]) -> list:
    """Return what each of several ranks returns; raise what the first of them to fail has raised."""
    if size == 1:
        return [work(Ranks(CPU))]
    crew, results, failed = _Crew(size), [None] * size, []
    threads_of_torch = torch.get_num_threads()

    def one(rank: int) -> None:
        try:
            results[rank] = work(_Member(crew, rank))
        except BaseException as error:
            failed.append(error)
            crew.barrier.abort()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.set_num_threads(threads_of_torch)
    if failed:
        raise failed[0]
    return results
