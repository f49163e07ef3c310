"""The contracts: passed by every registered score and store, failed by everything that breaks one."""

from __future__ import annotations

import pytest
import torch

from memstore_lib import contracts
from memstore_lib.scores import SCORES, Exponential, Linear, ReLU, Score, TruncatedExponential
from memstore_lib.stores import MLP, STORES, LeastSquares, OuterProduct, Store


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_every_registered_score_passes(score):
    contracts.check_score(score)


@pytest.mark.parametrize("make", STORES.values(), ids=STORES)
def test_every_registered_store_passes(make):
    contracts.check_store(make)


class Made(Score):
    """A score from a function."""

    name, latex = "made", "?"

    def __init__(self, sigma, kinks=(0.0,)):
        self.sigma, self.kinks = sigma, kinks

    def __call__(self, s):
        return self.sigma(s)


RIGHT = {
    "a flat root": ReLU(0.25),
    "a high power": ReLU(12),
    "steep": Exponential(64),
    "very steep": Exponential(1000),
    "flat": Exponential(0),
    "series": TruncatedExponential(8, 4),
    "softplus": Made(lambda s: torch.nn.functional.softplus(4 * s)),
    "cosh": Made(torch.cosh),
    "negative": Made(lambda s: -(s**3)),
    "shifted": Made(lambda s: (s - 0.3).clamp_min(0), kinks=(0.3,)),
    "step": Made(lambda s: (s > 0.5).to(s.dtype), kinks=(0.5,)),
}


@pytest.mark.parametrize("score", RIGHT.values(), ids=RIGHT)
def test_a_right_score_passes(score):
    contracts.check_score(score)


SHAPE, ELEMENTWISE = "has the shape and dtype of s", "depends on s alone, not on its neighbours"
BROKEN_SCORES = {
    "summed": (lambda s: s.sum(), AssertionError, SHAPE),
    "another axis": (lambda s: s[:, None] if s.ndim == 1 else s, AssertionError, SHAPE),
    "shorter": (lambda s: s[:-1], AssertionError, SHAPE),
    "single precision": (lambda s: s.float(), AssertionError, SHAPE),
    "no tensor": (lambda s: 1.0, AssertionError, SHAPE),
    "nothing": (lambda s: None, AssertionError, SHAPE),
    "double precision": (lambda s: s.double(), AssertionError, "float32 in, float32 out"),
    "softmax": (lambda s: s.softmax(-1), AssertionError, ELEMENTWISE),
    "normalised": (lambda s: s / s.norm(), AssertionError, ELEMENTWISE),
    "sorted": (lambda s: s.flip(-1), AssertionError, ELEMENTWISE),
    "order": (lambda s: s.cumsum(-1), AssertionError, ELEMENTWISE),
    "nearly elementwise": (lambda s: s + 1e-9 * s.mean(), AssertionError, ELEMENTWISE),
    "no signal": (lambda s: 1 - s**2, AssertionError, "σ\\(1\\) ≠ 0"),
    "NaN": (lambda s: s.sqrt(), ValueError, "must be finite on \\[-1, 1\\]"),
    "infinite": (lambda s: 1 / (1 - s), ValueError, "must be finite on \\[-1, 1\\]"),
    # Elementwise by every look at vectors, but not on the matrix of similarities that a measurement sees.
    "by the batch": (lambda s: s if s.ndim == 1 else 1.05 * s, AssertionError, "measured .* against law"),
}


@pytest.mark.parametrize(("sigma", "error", "words"), BROKEN_SCORES.values(), ids=BROKEN_SCORES)
def test_a_broken_score_fails(sigma, error, words):
    with pytest.raises(error, match=f"'made' must .*{words}" if error is AssertionError else f"score 'made' {words}"):
        contracts.check_score(Made(sigma))


class Base(Store):
    """A right store of its own, for the broken ones to break."""

    name = "base"

    def _weights(self, queries):
        return queries @ self.keys.T


class ForgetsTheFirst(Base):
    def _written(self, keys, values):
        super()._written(keys, values)
        self._keys, self._values = self._keys[-10:], self._values[-10:]


class CountsFromOne(Base):
    def __len__(self):
        return super().__len__() + 1


class WritesNothing(Base):
    def write(self, keys, values):
        super().write(keys, values)


class Transposed(Base):
    def _weights(self, queries):
        return self.keys @ queries.T


class LosesAMemory(Base):
    def _weights(self, queries):
        return super()._weights(queries)[:, 1:]


class SinglePrecision(Base):
    def _weights(self, queries):
        return super()._weights(queries).float()

    def _recall(self, queries):
        return super()._weights(queries) @ self.values


class RecallsAnother(Base):
    def _recall(self, queries):
        return 1.01 * super()._recall(queries)


class RecallsKeys(Base):
    def _recall(self, queries):
        return self.weights(queries) @ self.keys


class LooksAtTheBatch(Base):
    def _weights(self, queries):
        w = super()._weights(queries)
        return w / w.norm()


class RecallLooksAtTheBatch(Base):
    def _recall(self, queries):
        return super()._recall(queries) * (1 if len(queries) > 1 else 2)


class FavoursTheLast(Base):
    def _weights(self, queries):
        return super()._weights(queries) * torch.arange(1, len(self) + 1)


class CountsWrites(Base):
    def __init__(self):
        super().__init__()
        self.writes = 0

    def _written(self, keys, values):
        self.writes += 1

    def _weights(self, queries):
        return super()._weights(queries) / self.writes


class KeepsItsMemories(Base):
    def fresh(self):
        return self


class Negates(Base):
    def _weights(self, queries):
        return -super()._weights(queries)


class TellsAnotherScore(Base):
    score = ReLU()


BROKEN_STORES = {
    ForgetsTheFirst: (AssertionError, "write stores M memories"),
    CountsFromOne: (AssertionError, "a new store is empty"),
    WritesNothing: (AssertionError, "write stores M memories, returns the store"),
    Transposed: (ValueError, r"weights of store 'base' must have shape \(n, M\) = \(3, 13\), got \(13, 3\)"),
    LosesAMemory: (ValueError, r"weights of store 'base' must have shape \(n, M\) = \(3, 13\), got \(3, 12\)"),
    SinglePrecision: (AssertionError, "weights and recalls keep the dtype"),
    RecallsAnother: (AssertionError, "recall is the weighted sum of values"),
    RecallsKeys: (ValueError, r"recall of store 'base' must have shape \(n, d_v\) = \(3, 5\), got \(3, 7\)"),
    LooksAtTheBatch: (AssertionError, "one query gives that query's weights"),
    RecallLooksAtTheBatch: (AssertionError, "one query gives that query's recall"),
    FavoursTheLast: (AssertionError, "the order of writing does not matter"),
    CountsWrites: (AssertionError, "one memory at a time gives the same store"),
    KeepsItsMemories: (AssertionError, r"fresh\(\) is empty and leaves the store as it was"),
    Negates: (AssertionError, "one memory alone is recalled in its own direction"),
    TellsAnotherScore: (AssertionError, "weights are its score of the similarities"),
}


def test_the_unbroken_store_passes():
    contracts.check_store(Base)
    for make in (OuterProduct, LeastSquares, lambda: LeastSquares(3.0), lambda: MLP(Linear())):
        contracts.check_store(make)


@pytest.mark.parametrize("make", BROKEN_STORES, ids=lambda x: x.__name__)
def test_a_broken_store_fails(make):
    error, words = BROKEN_STORES[make]
    with pytest.raises(error, match=words):
        contracts.check_store(make)


def test_a_store_that_keeps_a_stale_cache_fails():
    class Stale(Store):
        name = "stale"

        def __init__(self):
            super().__init__()
            self.cached = None

        def _weights(self, queries):
            self.cached = self.keys if self.cached is None or len(self.cached) < len(self) else self.cached
            return queries @ self.cached.T

        def fresh(self):
            new = super().fresh()
            self._keys = self._values = None
            return new

    with pytest.raises(AssertionError, match=r"fresh\(\) is empty and leaves the store as it was"):
        contracts.check_store(Stale)
