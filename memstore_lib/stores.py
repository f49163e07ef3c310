"""The stores: outer product, least squares, MLP. Each states its weights; :mod:`memstore_lib.store` does the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch

from memstore_lib import _checks
from memstore_lib.merging import partial_by_chunks
from memstore_lib.scores import SCORES, Linear, Score
from memstore_lib.store import Store, empty_store, empty_stores

__all__ = ["MLP", "STORES", "LeastSquares", "OuterProduct", "Store", "empty_store", "empty_stores", "register"]


@final
class OuterProduct(Store):
    """Summed outer products, W = Σ v_i k_iᵀ = Vᵀ K: the weight of a memory is its similarity to the query.

    The state is the matrix W, (d_v, d_k): its size does not depend on M. Keys and values are kept beside it only so
    that weights can be looked at. Source: Kohonen 1972, "Correlation Matrix Memories".
    """

    name = "outer product"
    score = Linear()

    def __init__(self) -> None:
        super().__init__()
        self._state: torch.Tensor | None = None

    @property
    def W(self) -> torch.Tensor:
        """A copy of the state W, (d_v, d_k). Raises ValueError while nothing is stored."""
        self._filled()
        assert self._state is not None
        return self._state.clone()

    def _written(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        update = values.T @ keys  # one more memory adds v kᵀ and touches nothing else
        self._state = update if self._state is None else self._state + update

    def _changed(self) -> None:
        self._state = None

    def _weights(self, queries: torch.Tensor) -> torch.Tensor:
        return queries @ self.keys.T

    def _recall(self, queries: torch.Tensor) -> torch.Tensor:
        return queries @ self.W.T


@final
class LeastSquares(Store):
    """The best linear map: W = argmin Σ ‖W k_i - v_i‖² + λ ‖W‖².

    Without ridge it is Vᵀ (Kᵀ)⁺: the minimum-norm map through every memory for M ≤ d_k independent keys, the normal
    equations Vᵀ K (Kᵀ K)⁻¹ beyond. Duplicate and dependent keys are handled by the pseudoinverse: directions below
    the keys' own rounding count as zero. The work is done in float64 on the CPU, since MPS has no float64 and CUDA's
    ``lstsq`` assumes full rank; results come back on the queries' device and of their dtype.

    Args:
        ridge: λ ≥ 0, in units of a squared key length (1 for unit keys).

    Raises:
        ValueError: ridge negative or not finite.
        TypeError: ridge not a number.
    """

    def __init__(self, ridge: float = 0.0) -> None:
        super().__init__()
        self.ridge = _checks.real("ridge", ridge, low=0.0)
        self.name = "ridge" if self.ridge else "least squares"
        self._dual: torch.Tensor | None = None

    def _changed(self) -> None:
        self._dual = None

    @property
    def dual_keys(self) -> torch.Tensor:
        """The keys k̃_i that queries are really compared with, (M, d_k), so that weights are w_i = k̃_i · q.

        Without ridge these are the rows of K (Kᵀ K)⁺ = (K Kᵀ)⁺ K; for M ≤ d_k independent keys they are the dual
        basis, k̃_i · k_j = δ_ij. Raises ValueError for keys whose squares leave the range of a float.
        """
        dual = self._duals()
        return dual.clone() if dual is self._dual else dual

    def _duals(self) -> torch.Tensor:
        keys = self.keys
        if self._dual is None:
            self._dual = _dual_keys(keys.cpu().double(), self.ridge, torch.finfo(keys.dtype).eps)
        return self._dual.to(keys.device, keys.dtype)

    @property
    def W(self) -> torch.Tensor:
        """The map W = Vᵀ K̃, (d_v, d_k)."""
        return self.values.T @ self._duals()

    def _weights(self, queries: torch.Tensor) -> torch.Tensor:
        return queries @ self._duals().T


def _dual_keys(keys: torch.Tensor, ridge: float, eps: float) -> torch.Tensor:
    """Return K (KᵀK + λI)⁺ in float64, for float64 keys known to a relative precision of ``eps``."""
    M, d = keys.shape
    largest = keys.abs().max().item()
    if not 1e-140 <= largest <= 1e140:
        raise ValueError(f"keys must have a largest entry of 1e-140 to 1e140, got {largest:.3g}: scale them")
    if ridge or M > d:
        return _dual_from_gram(keys, ridge, eps)
    # QR keeps the digits that squaring the keys would lose. A diagonal entry of R is the distance of a key from the
    # span of those before it, so duplicate and dependent keys show there.
    q, r = torch.linalg.qr(keys.T)
    if _well_conditioned(r.diagonal().abs()):
        dual = torch.linalg.solve_triangular(r, q.T, upper=True)
        if _resolved(keys, dual, eps, limit=1e6):
            return dual
    left, sizes, right = torch.linalg.svd(keys, full_matrices=False)
    return (left * _inverse(sizes, cutoff=max(M, d) * eps)) @ right


def _dual_from_gram(keys: torch.Tensor, ridge: float, eps: float) -> torch.Tensor:
    """Solve in the smaller of the two Gram matrices, M × M or d × d: the normal equations beyond M = d."""
    M, d = keys.shape
    gram = keys @ keys.T if M < d else keys.T @ keys
    gram.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(gram)
    if not failed and _well_conditioned(factor.diagonal()):
        dual = torch.cholesky_solve(keys, factor) if M < d else torch.cholesky_solve(keys.T, factor).T
        if _resolved(keys, dual, eps, limit=1e4):
            return dual
    energies, directions = torch.linalg.eigh(gram)
    # Forming the Gram matrix leaves rounding of its own, which can exceed the square of the keys' precision.
    cutoff = max((max(M, d) * eps) ** 2, 10 * len(gram) * torch.finfo(torch.float64).eps)
    inverse = (directions * _inverse(energies, cutoff)) @ directions.T
    return inverse @ keys if M < d else keys @ inverse


def _well_conditioned(diagonal: torch.Tensor) -> bool:
    """Tell whether a triangular factor is far from singular; if in doubt the slower, rank-revealing way is taken."""
    return bool(diagonal.min() > 1e-3 * diagonal.max())


def _resolved(keys: torch.Tensor, dual: torch.Tensor, eps: float, limit: float) -> bool:
    """Tell whether every direction of the keys stands above their rounding; a diagonal can miss that many are near."""
    # ‖K‖ ‖K⁺‖ is at least the ratio of the largest to the smallest singular value.
    return bool(keys.norm() * dual.norm() < min(limit, 1 / (max(keys.shape) * eps)))


def _inverse(x: torch.Tensor, cutoff: float) -> torch.Tensor:
    """Return 1/x where x exceeds ``cutoff`` times the largest, else 0."""
    alive = x > cutoff * x.max()
    return torch.where(alive, 1 / torch.where(alive, x, torch.ones_like(x)), torch.zeros_like(x))


@final
class MLP(Store):
    """Vᵀ σ(K x), a two-layer MLP: rows of its first matrix are the keys, columns of its second the values.

    Args:
        score: the activation σ, any :class:`memstore_lib.scores.Score`.

    Raises:
        TypeError: not a score.
    """

    def __init__(self, score: Score) -> None:
        super().__init__()
        if not isinstance(score, Score):
            raise TypeError(f"score must be a Score, got {type(score).__name__}")
        self.score = score
        self.name = score.name

    def _weights(self, queries: torch.Tensor) -> torch.Tensor:
        return self.score(queries @ self.keys.T)


@final
class Attention(Store):
    """Softmax attention, Vᵀ softmax(β K q): recall of one query over the stored keys.

    Unit keys and queries with β = √d_k equal keys and queries of length √d_k whose products are divided by √d_k, the
    form of Vaswani et al. 2017. The largest score is subtracted before the exponential, which is what prevents
    overflow; dividing by the sum does not.

    Args:
        beta: sharpness β, finite and at least 0.
        chunk: keys taken at a time by :meth:`recall`, whose partial results are merged as a tree.

    Raises:
        ValueError: β negative or not finite, a chunk below 1.
        TypeError: β not a number, the chunk not an integer.
    """

    name = "softmax"

    def __init__(self, beta: float = 8.0, chunk: int = 4096) -> None:
        super().__init__()
        self.beta = _checks.real("beta", beta, low=0.0)
        self.chunk = _checks.integer("chunk", chunk)

    def _weights(self, queries: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.beta * (queries @ self.keys.T), dim=1)

    def _recall(self, queries: torch.Tensor) -> torch.Tensor:
        return partial_by_chunks(queries, self.keys, self.values, self.beta, chunk=self.chunk).recall()


@final
class GatedFeatures(Store):
    """A gated MLP with random hidden units and a linear read-out: W φ(x) with φ(x) = (A x) ⊙ (B x).

    Memories are written as outer products over the features, W = Σ v_i φ(k_i)ᵀ, so the number of hidden units does not
    grow with M. φ(k)·φ(q) is a noisy form of (k·q)²; more units make it less noisy.

    Args:
        units: hidden units, from 1 to 2^20.
        seed: of the random matrices A and B, below 2^32.

    Raises:
        ValueError: units or a seed out of range.
        TypeError: units or seed not an integer.
    """

    name = "gated features"

    def __init__(self, units: int = 256, seed: int = 0) -> None:
        super().__init__()
        self.units = _checks.integer("units", units, maximum=_checks.LONGEST)
        self.seed = _checks.seed(seed)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Return the hidden activations φ(x), (n, units), of vectors x, (n, d_k)."""
        _checks.size(matrices=2, d_k=x.shape[1], units=self.units)
        draw = torch.Generator().manual_seed(self.seed)
        both = torch.randn(2, x.shape[1], self.units, generator=draw, dtype=torch.float64).to(x.device, x.dtype)
        return (x @ both[0]) * (x @ both[1]) / self.units**0.5

    def _weights(self, queries: torch.Tensor) -> torch.Tensor:
        return self.features(queries) @ self.features(self.keys).T


#: The registered stores by name, as functions that make an empty one.
STORES: dict[str, Callable[[], Store]] = {}


def register(name: str, make: Callable[[], Store], *, replace: bool = False) -> Callable[[], Store]:
    """Add a store to :data:`STORES`, which the contract tests walk; returns ``make``.

    A notebook cell may run twice: a class or function of the same module and name replaces its former self, as long as
    the stores it makes are of a class of the same module and name, too. Any other takes a name only with ``replace``.

    Args:
        name: how figures and tables call it.
        make: called without arguments, returns an empty store.
        replace: take the name from whatever has it.

    Raises:
        ValueError: the name is empty or taken by another store.
        TypeError: ``make`` is no function or does not return a :class:`Store`.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"name must be a word or two, got {name!r}")
    _checks.function("make", make)
    store = make()
    if not isinstance(store, Store):
        raise TypeError(f"make must return a Store, got {type(store).__name__}")
    taken = STORES.get(name)
    if not (replace or taken is None or taken == make or _again(taken, make, store)):
        raise ValueError(
            f"store name {name!r} is taken by {type(taken()).__name__}: choose another, or replace it with replace=True"
        )
    STORES[name] = make
    return make


def _again(taken: Callable[[], Store], make: Callable[[], Store], store: Store) -> bool:
    """Tell whether a function or class was defined again, as a notebook cell does that runs twice."""
    made, kind = _checks.origin(make), _checks.origin(type(store))
    return made is not None and made == _checks.origin(taken) and kind == _checks.origin(type(taken()))


register("outer product", OuterProduct)
register("least squares", LeastSquares)
register("ridge", lambda: LeastSquares(ridge=0.1))
register("softmax", Attention)
register("gated features", GatedFeatures)
for _name, _score in SCORES.items():
    if _name not in STORES:
        register(_name, lambda score=_score: MLP(score))
