"""Scores and sharpness rules by the short names that the command takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memstore_lib import scores, sharpness
from memstore_lib.scores import Score
from memstore_lib.sharding.job import Entry

#: Scores by name; ``exp`` is softmax's at the reference β, ``exp=12`` at β = 12.
SCORES: dict[str, Callable[[float], Score]] = {
    "linear": lambda beta: scores.Linear(),
    "relu": lambda beta: scores.ReLU(),
    "relu2": lambda beta: scores.ReLU(2),
    "relu3": lambda beta: scores.ReLU(3),
    "swiglu": lambda beta: scores.SwiGLU(),
    "exp": scores.Exponential,
}

#: Sharpness rules by name, from the reference β and the reference length L.
RULES: dict[str, Callable[[float, float], sharpness.Sharpness]] = {
    "fixed": sharpness.Fixed,
    "su": sharpness.Su,
    "qwen": sharpness.QwenLogN,
    "yarn": sharpness.YaRN,
    "yarn-clamped": lambda beta, L: sharpness.YaRN(beta, L, clamp=True),
}


def chosen(score_names: Sequence[str], rule_names: Sequence[str], *, beta: float, L: float) -> dict[str, Entry]:
    """Return scores and rules under their names, as :class:`.Job` takes them.

    Args:
        score_names: of :data:`SCORES`; ``exp=12`` gives the sharpness.
        rule_names: of :data:`RULES`.
        beta: reference sharpness.
        L: reference length of the rules.

    Raises:
        ValueError: a name that is not known or stands twice, or no name at all.
    """
    names = [*score_names, *rule_names]
    if not names:
        raise ValueError(f"scores or rules must name at least one, known are {_known(SCORES)}; {_known(RULES)}")
    if len(set(names)) < len(names):
        raise ValueError(f"scores and rules must each stand once, got {', '.join(names)}")
    entries: dict[str, Entry] = {name: _score(name, beta) for name in score_names}
    for name in rule_names:
        if name not in RULES:
            raise ValueError(f"rules must be among {_known(RULES)}, got {name!r}")
        entries[name] = RULES[name](beta, L).score
    return entries


def _score(name: str, beta: float) -> Score:
    base, equals, own = name.partition("=")
    if base not in SCORES or (equals and base != "exp"):
        raise ValueError(f"scores must be among {_known(SCORES)} or exp=BETA, got {name!r}")
    if not equals:
        return SCORES[base](beta)
    try:
        return scores.Exponential(float(own))
    except ValueError:
        raise ValueError(f"exp=BETA must give a sharpness of at least 0, got {name!r}") from None


def _known(names: dict) -> str:
    return ", ".join(names)
