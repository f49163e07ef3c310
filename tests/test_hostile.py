"""Input from a session of trying to break the library: each was once silent, or an error that named nothing."""

from __future__ import annotations

import copy
import pickle

import pandas as pd
import pytest
import torch

from memstore_lib import claims, contracts, intervals, measure, memories, scores, spectrum, stores, theory

K = memories.unit_keys(4, 6, seed=0, device="cpu")
V = memories.values(4, 5, seed=1, device="cpu")
ROW = "- {id: a, chapter: c, kind: trend, claim: x"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: stores.Attention(1e39).write(K, V).recall(K), ValueError, "recall of store 'softmax' must be finite"),
        (lambda: stores.MLP(scores.ReLU(3)).write(K * 1e20, V).weights(K * 1e20), ValueError, "must be finite"),
        (lambda: stores.OuterProduct().write(K * 1e30, V * 1e30).recall(K * 1e30), ValueError, "must be finite"),
        (lambda: stores.OuterProduct().write(K, V.to("meta")), ValueError, "values must hold numbers, .* meta"),
        (lambda: stores.OuterProduct().write(K.to_sparse(), V), TypeError, "keys must be a dense tensor"),
        (lambda: scores.ReLU(10**400), ValueError, "power must be finite"),
        (lambda: theory.moment(scores.Linear(), 10**400), ValueError, "d must be at most"),
        (lambda: memories.unit_keys(3, 4, seed=2**32), ValueError, "seed must be below"),
        (lambda: _spectrum(cosines=[1.0, 1.0]), ValueError, "cosines must be at least one and all different"),
        (
            lambda: memories.unit_keys(10**9, 64, seed=0),
            ValueError,
            "must be at most 2.33 numbers, .* got 1000000000 · 64",
        ),
        (
            lambda: scores.TruncatedExponential(8.0, 10**12),
            ValueError,
            "terms must be at most 10,000, got 10+",
        ),
        (lambda: _spectrum(cosines=[]), ValueError, "cosines must be at least one and all different"),
    ],
)
def test_breaking_input_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def _spectrum(**options):
    return spectrum.interference({"a": scores.ReLU()}, [4], d=4, queries=4, replicates=2, **options)


@pytest.mark.parametrize("field", ["caveat: '', where: 'p#s'", "caveat: ' ', where: ' # '", "caveat: 'so', where: '#'"])
def test_a_blank_caveat_excuses_nothing(tmp_path, field):
    ledger = tmp_path / "claims.yml"
    ledger.write_text(f"{ROW}, {field}}}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="must be a text or left out"):
        claims.load(ledger)


@pytest.mark.parametrize("holds", ["False", float("nan"), 1, torch.ones(2, dtype=torch.bool)])
def test_a_trend_holds_or_does_not(tmp_path, holds):
    ledger = tmp_path / "claims.yml"
    ledger.write_text(f"{ROW}}}\n", encoding="utf-8")
    chapter = claims.Chapter("c", claims=claims.load(ledger))
    with pytest.raises(TypeError, match="holds must be True or False"):
        chapter.trend("a", holds, "5 of 5")


def test_a_glyph_that_cannot_be_seen_is_refused():
    pytest.importorskip("PIL")
    from memstore_lib import glyphs

    with pytest.raises(ValueError, match="can be seen"):
        glyphs.images("\u3164記")


STEEP = scores.TruncatedExponential(300.0, 1000)  # up to 1e130: a float64's squares hold it, a float32's do not
HUGE = scores.TruncatedExponential(1e100, 5)
TABLE = pd.DataFrame({"M": [2, 4], "replicate": [0, 0], "accuracy": [1.0, 0.5]})
FOUND = {"d": 4, "queries": 4, "replicates": 2, "device": "cpu"}


@pytest.mark.parametrize("score", [STEEP, HUGE])
def test_a_score_whose_squares_overflow_is_not_measured(score):
    with pytest.raises(ValueError, match=r"must have finite squares in torch.float32, got overflow: use a smaller β"):
        measure.interference(stores.MLP(score), [9], **FOUND)
    if score is STEEP:
        wide = measure.interference(stores.MLP(score), [9], dtype=torch.float64, **FOUND)
        assert wide.at(score.name, 9).value < 1


def test_a_score_whose_squares_overflow_has_no_spectrum():
    (seen,) = spectrum.spectra([9], d=4, queries=4, device="cpu")
    with pytest.raises(ValueError, match=r"'exp, 5 terms' must have finite squares, got overflow: use a smaller"):
        seen.squared_ratio(HUGE)
    with pytest.raises(ValueError, match="finite squares"):
        spectrum.read([seen], {"a": HUGE}, d=4, replicates=2)
    assert torch.isfinite(seen.squared_ratio(STEEP)).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: spectrum.read([], [scores.ReLU()]), "scores must be a mapping .* got list"),
        (lambda: spectrum.read(None, {"a": scores.ReLU()}), "spectra must be a sequence .* got NoneType"),
        (lambda: spectrum.Spectrum(3, [[1, 1]], 1.0), "counts must be a torch.Tensor .* got list"),
        (lambda: spectrum.Spectrum(3, torch.ones(1, 16), 1.0).squared_ratio("ReLU"), "score must be a Score, got str"),
        (lambda: spectrum.attention_table([], "weight"), "table must be a table, .* got list"),
        (lambda: measure.facts_at(0.5, [1]), "table must be a table, .* got list"),
        (lambda: measure.histogram([1.0]), "series must be a mapping .* got list"),
        (lambda: measure.Measurement([]), "replicates must be a table, got list"),
        (lambda: measure.interval(None), "samples must be a sequence of numbers, got NoneType"),
        (lambda: measure.interference(stores.OuterProduct(), [4], keys="unit"), "keys must be a function, got str"),
        (lambda: measure.interference(stores.OuterProduct(), [4], keys=list_of_keys), "keys must be .* got list"),
        (lambda: measure.recall_ratio(stores.OuterProduct(), 4, values=V), "values must be a function, got Tensor"),
        (lambda: intervals.root(3.0), "x must be an Interval, got float"),
        (lambda: theory.curve("a", 3.0, [4]), "ratio must be a function, got float"),
        (lambda: theory.isr("ReLU", 4, 4), "score must be a Score, got str"),
        (lambda: theory.capacity([], 4), "score must be a Score, got list"),
        (lambda: contracts.check_score("ReLU"), "score must be a Score, got str"),
        (lambda: contracts.check_store(stores.OuterProduct()), "make must be a function, got OuterProduct"),
        (lambda: contracts.check_store(dict), "make must be a function that returns a Store, got dict"),
        (lambda: stores.register("new", 3), "make must be a function, got int"),
    ],
)
def test_a_wrong_kind_of_argument_is_named(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def list_of_keys(M, d, **options):
    return memories.unit_keys(M, d, **options).tolist()


@pytest.mark.parametrize("store", [stores.OuterProduct(), stores.LeastSquares()])
@pytest.mark.parametrize("more", [(1, 0), (-1, 0), (0, 1)])
def test_keys_of_another_shape_are_not_measured(store, more):
    def keys(M, d, **options):
        return memories.unit_keys(M + more[0], d + more[1], **options)

    with pytest.raises(ValueError, match=r"keys must draw the shape it is asked for, \(9, 4\), got"):
        measure.interference(store, [3, 9], keys=keys, **FOUND)
    with pytest.raises(ValueError, match=r"values must draw the shape it is asked for, \(9, 64\), got"):
        measure.recall_ratio(store, 9, values=keys, **FOUND)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: measure.histogram({"a": [0.0]}, bins=10**9), "bins must be at most 1,048,576, got 1000000000"),
        (lambda: measure.similarities([4], bins=10**9), "bins must be at most 1,048,576"),
        (lambda: theory.similarity_curve([4], points=10**9), "points must be at most 1,048,576"),
        (lambda: stores.GatedFeatures(units=10**9), "units must be at most 1,048,576"),
        (lambda: stores.GatedFeatures(2**20).features(torch.ones(1, 2**13)), r"matrices · d_k · units must be at most"),
        (lambda: measure.interference(stores.OuterProduct(), [4], queries=10**9), r"queries · chunk must be at most"),
        (lambda: list(spectrum.spectra([4], queries=10**7)), r"queries · bins must be at most"),
        (lambda: list(spectrum.spectra([4], bins=10**9)), "bins must be at most"),
        (lambda: stores.GatedFeatures(seed=2**32), "seed must be below"),
        (lambda: measure.facts_at(1.0, TABLE), "accuracy must lie strictly between 0 and 1, got 1"),
    ],
)
def test_what_would_fill_the_memory_or_mean_nothing_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("length", [1e-150, 1e150, 1e200])
@pytest.mark.parametrize(("M", "ridge"), [(3, 0.0), (3, 0.1), (9, 0.0)])
def test_least_squares_refuses_keys_that_cannot_be_squared(length, M, ridge):
    keys = memories.unit_keys(M, 6, seed=0, device="cpu", dtype=torch.float64) * length
    store = stores.LeastSquares(ridge).write(keys, torch.ones(M, 2, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"keys must have a largest entry of 1e-140 to 1e140, got .*: scale them"):
        store.recall(keys)


@pytest.mark.parametrize("make", [stores.OuterProduct, stores.LeastSquares, lambda: stores.MLP(scores.ReLU())])
@pytest.mark.parametrize("edited", ["keys", "values"])
def test_a_store_notices_an_edit_in_place(make, edited):
    store = make().write(K, V)
    store.keys.clone().zero_()
    right = store.recall(K)
    copies = [copy.deepcopy(store), pickle.loads(pickle.dumps(store)), copy.copy(store).fresh().write(K, V)]
    getattr(store, edited)[0] *= 2
    for use in (store.recall, store.weights, lambda x: store.write(x, V)):
        with pytest.raises(ValueError, match="must not be edited in place once they are written"):
            use(K)
    assert all(torch.equal(one.recall(K), right) for one in copies)
    assert torch.equal(store.fresh().write(K, V).recall(K), right)


@pytest.mark.parametrize(
    ("make", "state"), [(stores.OuterProduct, "W"), (stores.LeastSquares, "dual_keys"), (stores.LeastSquares, "W")]
)
def test_a_state_that_is_looked_at_is_a_copy(make, state):
    store = make().write(K.double(), V.double())
    before = store.recall(K.double())
    getattr(store, state).zero_()
    assert torch.equal(store.recall(K.double()), before)


def test_a_store_works_in_inference_mode():
    with torch.inference_mode():
        store = stores.OuterProduct().write(K, V).write(K, V)
        assert torch.isfinite(store.recall(K)).all()
