"""How long and how large a training run is: small, medium and large, chosen by the device or by one variable."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field

import torch

from memstore_lib import _checks
from memstore_lib.device import resolve
from memstore_lib.language_models.models import Size

ENVIRONMENT_VARIABLE = "MEMSTORE_TRAINING"


@dataclass(frozen=True)
class Settings:
    """One way to train every model.

    Attributes:
        name: how the page calls it.
        d_model, layers, heads: size of a model.
        transformer_layers: layers of transformers, where these have a number of their own.
        sequence: tokens that a model sees at once.
        batch: sequences a step.
        steps: updates.
        learning_rate: the peak of the schedule, for a model without an entry in ``rates``.
        rates: peak by model.
        validation_every: steps between two looks at the validation files; the last step is always followed by one.
        validation_windows: fixed sequences that each look reads.
        packages: whether the corpus holds the installed packages too.
        vocabulary: kinds of tokens.
        seeds: how many the chapter trains each model with.

    Raises:
        ValueError: a number out of range, heads that do not divide d_model.
        TypeError: an argument of another type.
    """

    name: str
    d_model: int
    layers: int
    heads: int
    sequence: int
    batch: int
    steps: int
    learning_rate: float
    validation_every: int
    validation_windows: int
    transformer_layers: int | None = None
    rates: dict[str, float] = field(default_factory=dict)
    packages: bool = False
    vocabulary: int = 1024
    seeds: int = 1

    def __post_init__(self) -> None:
        for name in ("sequence", "batch", "steps", "validation_every", "validation_windows", "seeds"):
            _checks.integer(name, getattr(self, name))
        for name, rate in {"learning_rate": self.learning_rate, **self.rates}.items():
            _checks.real(name, rate, low=0.0, open_low=True)
        self.size("transformer"), self.size("Gated DeltaNet")

    @property
    def tokens(self) -> int:
        """Tokens that a whole run trains on."""
        return self.steps * self.batch * self.sequence

    def size(self, model: str) -> Size:
        """Return the size of one of the models."""
        layers = self.transformer_layers if model.startswith("transformer") and self.transformer_layers else self.layers
        return Size(self.d_model, layers, self.heads, self.vocabulary, self.sequence)

    def run(self, model: str) -> dict[str, object]:
        """Return what decides about one run of one of the models, seed and corpus aside."""
        known = dataclasses.asdict(self) | {"learning_rate": self.rate(model)}
        return {name: value for name, value in known.items() if name not in ("rates", "seeds")}

    def rate(self, model: str) -> float:
        """Return the peak learning rate of one of the models."""
        return self.rates.get(model, self.learning_rate)


SETTINGS = {
    made.name: made
    for made in (
        # A laptop or Binder: a minute or two of one core for each run. One head, so that a key is a whole embedding,
        # and a context long enough for a shift to pay. Half the rate is worse for all, twice the rate no better.
        Settings(
            "small",
            d_model=64,
            layers=2,
            heads=1,
            sequence=1024,
            batch=1,
            steps=900,
            learning_rate=6e-3,
            validation_every=100,
            validation_windows=32,
            seeds=2,
        ),
        # Long enough for the two transformers to cross.
        Settings(
            "medium",
            d_model=128,
            layers=4,
            heads=4,
            sequence=512,
            batch=4,
            steps=4000,
            learning_rate=3e-3,
            validation_every=200,
            validation_windows=64,
        ),
        # The source's 18M runs, on 30 million tokens.
        Settings(
            "large",
            d_model=512,
            layers=6,
            heads=4,
            transformer_layers=8,
            sequence=2048,
            batch=4,
            steps=3662,
            learning_rate=6e-4,
            validation_every=200,
            validation_windows=64,
            packages=True,
        ),
    )
}


def choose(device: str | torch.device | None = None) -> Settings:
    """Return the settings for a device: large on CUDA, else small; ``MEMSTORE_TRAINING`` overrides.

    Raises:
        ValueError: the variable holds an unknown name, or the device is unknown or not there.
    """
    wish = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    if wish:
        return SETTINGS[_checks.choice(ENVIRONMENT_VARIABLE, wish, SETTINGS)]
    return SETTINGS["large" if resolve(device).type == "cuda" else "small"]
