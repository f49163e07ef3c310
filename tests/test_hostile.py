"""Input from a session of trying to break the library: each was once silent, or an error that named nothing."""

from __future__ import annotations

import pytest
import torch

from memstore_lib import claims, memories, scores, spectrum, stores, theory

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
