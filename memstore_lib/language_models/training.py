"""Training one model, so that a run can be stopped, resumed and repeated.

AdamW (0.9, 0.95) with weight decay 0.1 on matrices, gradients clipped to length 1, a linear warm-up over 5 % of the
steps and a cosine down to 10 % of the peak.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from memstore_lib import _checks
from memstore_lib._files import whole
from memstore_lib.device import resolve
from memstore_lib.language_models.corpus import Corpus, windows
from memstore_lib.language_models.models import LanguageModel, build, parameters
from memstore_lib.language_models.settings import Settings

WARM_UP, FLOOR, WEIGHT_DECAY, BETAS, CLIP = 0.05, 0.1, 0.1, (0.9, 0.95), 1.0
FORMAT = "memstore training 1"
BUILD_VARIABLE = "MEMSTORE_BUILD"  # set while a build executes the chapters: a bar would be printed into the page
LOOK_EVERY = 50  # steps between two looks at the losses: on a GPU each look waits for the device
VALIDATION_SEED = 20_240_901  # the same windows for every model and seed


class CheckpointError(ValueError):
    """A checkpoint that is corrupt, or belongs to another run."""


@dataclass(frozen=True)
class Run:
    """A trained model and how it came about.

    Attributes:
        model: the trained model, on the CPU.
        history: a row a step: model, seed, step (from 1), tokens (seen so far), training_loss, and validation_loss,
            NaN at steps without a look. Losses are in nats a token.
        seconds: time spent in training steps, over all parts of an interrupted run; looks at validation not counted.
        parameters: of the model.
    """

    model: LanguageModel
    history: pd.DataFrame
    seconds: float
    parameters: int

    @property
    def tokens_per_second(self) -> float:
        """Training tokens a second."""
        return float(self.history["tokens"].iloc[-1]) / self.seconds

    @property
    def validation_loss(self) -> float:
        """The validation loss at the end."""
        return float(self.history["validation_loss"].dropna().iloc[-1])


def schedule(step: int, steps: int) -> float:
    """Return the share of the peak learning rate at a step, counted from 0, of so many."""
    warm = max(1, round(WARM_UP * steps))
    if step < warm:
        return (step + 1) / warm
    return FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def identity(name: str, settings: Settings, corpus: Corpus, seed: int) -> str:
    """Return what makes a run this run and no other: model, settings, seed, corpus, torch, and the code that trains."""
    known = {"format": FORMAT, "model": name, "seed": seed, "corpus": corpus.checksum}
    known |= {"torch": torch.__version__, "code": _code()}
    return json.dumps(known | settings.run(name), sort_keys=True)


@functools.cache
def _code() -> str:
    """Return a hash of the code that a run depends on; comments and layout do not count."""
    here = Path(__file__).parent
    files = [here.parent / "delta_rule.py", *(here / f"{name}.py" for name in ("mixers", "models", "training"))]
    trees = [ast.dump(ast.parse(file.read_text(encoding="utf-8"))) for file in files]
    return hashlib.sha256("".join(trees).encode()).hexdigest()[:16]


def train(
    name: str,
    settings: Settings,
    corpus: Corpus,
    *,
    seed: int,
    device: str | torch.device | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 200,
    progress: bool | None = None,
) -> Run:
    """Train one model.

    Args:
        name: one of ``memstore_lib.language_models.models.MODELS`` or ``ABLATIONS``.
        settings: size, length and learning rate.
        corpus: what is read.
        seed: draws the parameters and the windows; on a CPU, the same seed gives the same run to the bit.
        device: as for :func:`memstore_lib.device.resolve`.
        checkpoint: a file to resume from, if it is there, and to write to. A finished run is read from it.
        checkpoint_every: steps between two writes; the end is always written.
        progress: whether to show a bar; None shows one on a terminal and in a notebook, but not in a build's pages.

    Raises:
        ValueError: an unknown model, a seed below 0, a vocabulary that is not the corpus's, a corpus too small for one
            window.
        CheckpointError: the checkpoint is corrupt or belongs to another run; it is left as it is.
        FloatingPointError: a loss that is NaN or infinite; nothing of it is written.
    """
    seed, every = _checks.integer("seed", seed, minimum=0), _checks.integer("checkpoint_every", checkpoint_every)
    device = resolve(device)
    if corpus.vocabulary != settings.vocabulary:
        raise ValueError(f"corpus must have {settings.vocabulary} kinds of tokens, got {corpus.vocabulary}")
    state = _State(name, settings, corpus, seed, device)
    path = Path(checkpoint) if checkpoint is not None else None
    if path is not None and path.exists():
        state.restore(path)
    held_out = windows(corpus.validation, settings.validation_windows, settings.sequence, generator=_validation_draw())
    if state.step < settings.steps:
        windows(corpus.train, 1, settings.sequence, generator=_validation_draw())  # too small shows before any step
    for _ in progress_bar(
        range(state.step, settings.steps), f"{name}, seed {seed}", state.step, settings.steps, progress
    ):
        start = time.perf_counter()
        state.advance()
        state.seconds += time.perf_counter() - start
        last = state.step == settings.steps
        if last or state.step % settings.validation_every == 0:
            state.look()
            state.validation.append((state.step, _validate(state.model, held_out, settings.batch, device)))
        if path is not None and (last or state.step % every == 0):
            state.look()
            state.save(path)
    return state.run()


def _validation_draw() -> torch.Generator:
    return torch.Generator().manual_seed(VALIDATION_SEED)


def progress_bar(items: Iterable, what: str, first: int, total: int, progress: bool | None) -> Iterable:
    """Wrap steps or runs in a progress bar; None shows one where somebody may be watching."""
    if not (_watched() if progress is None else progress):
        return items
    from tqdm import tqdm

    return tqdm(items, desc=what, initial=first, total=total)


def _watched() -> bool:
    """Whether this is a terminal or a notebook that is not being executed by a build of the book."""
    if os.environ.get(BUILD_VARIABLE):
        return False
    application = getattr(sys.modules.get("ipykernel.kernelapp"), "IPKernelApp", None)
    return sys.stderr.isatty() or (application is not None and application.initialized())


@torch.no_grad()
def _validate(model: LanguageModel, held_out: torch.Tensor, batch: int, device: torch.device) -> float:
    losses = [model.loss(part.to(device)) * len(part) for part in held_out.split(batch)]
    loss = float(torch.stack(losses).sum()) / len(held_out)
    if not math.isfinite(loss):
        raise FloatingPointError(f"validation loss must be finite, got {loss}")
    return loss


class _State:
    """A run under way: all that a checkpoint keeps."""

    def __init__(self, name: str, settings: Settings, corpus: Corpus, seed: int, device: torch.device) -> None:
        self.name, self.settings, self.corpus, self.seed, self.device = name, settings, corpus, seed, device
        self.identity = identity(name, settings, corpus, seed)
        self.model = build(name, settings.size(name), seed=seed, device=device)
        # Windows are drawn on the CPU, from a stream of their own: every model of one seed reads the same text.
        self.draw = torch.Generator().manual_seed(seed + 1_000_003)
        matrices = [p for p in self.model.parameters() if p.ndim >= 2]
        others = [p for p in self.model.parameters() if p.ndim < 2]
        groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
        fused = device.type in ("cpu", "cuda")
        self.optimizer = torch.optim.AdamW(groups, lr=settings.rate(name), betas=BETAS, fused=fused)
        self.step, self.seconds = 0, 0.0
        self.losses: list[float] = []
        self.validation: list[tuple[int, float]] = []
        self._unseen: list[torch.Tensor] = []

    def advance(self) -> None:
        """Do one step."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.rate(self.name) * schedule(self.step, self.settings.steps)
        rows = windows(self.corpus.train, self.settings.batch, self.settings.sequence, generator=self.draw)
        loss = self.model.loss(rows.to(self.device))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        self.step += 1
        self._unseen.append(loss.detach())
        if self.device.type == "cpu" or len(self._unseen) >= LOOK_EVERY:
            self.look()

    def look(self) -> None:
        """Take in the losses since the last look.

        Raises:
            FloatingPointError: one of them is NaN or infinite.
        """
        if not self._unseen:
            return
        found = torch.stack(self._unseen).tolist()
        for i, loss in enumerate(found):
            if not math.isfinite(loss):
                step = self.step - len(found) + i + 1
                raise FloatingPointError(
                    f"training loss of {self.name!r}, seed {self.seed}, must be finite, got {loss} at step {step}: "
                    "use a smaller learning rate"
                )
        self.losses += found
        self._unseen = []

    def save(self, path: Path) -> None:
        """Write everything to a file beside ``path`` and move it there: a checkpoint is always whole."""
        kept = {
            "identity": self.identity,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "draw": self.draw.get_state(),
            "step": self.step,
            "seconds": self.seconds,
            "losses": self.losses,
            "validation": self.validation,
        }
        with whole(path) as file:
            torch.save(kept, file)

    def restore(self, path: Path) -> None:
        """Go on from a checkpoint.

        Raises:
            CheckpointError: it is not whole, or another run's.
        """
        try:
            kept = torch.load(path, map_location=self.device, weights_only=True)
            identity = kept["identity"]
        except Exception as error:  # a damaged file can raise nearly anything
            raise CheckpointError(f"{path} is not a whole checkpoint ({error}): delete it to start anew") from error
        if identity != self.identity:
            raise CheckpointError(
                f"{path} must be a checkpoint of {self.identity}, got one of {identity}: delete it to start anew"
            )
        self.model.load_state_dict(kept["model"])
        self.optimizer.load_state_dict(kept["optimizer"])
        self.draw.set_state(kept["draw"].cpu())
        self.step, self.seconds = kept["step"], kept["seconds"]
        self.losses, self.validation = list(kept["losses"]), [tuple(row) for row in kept["validation"]]

    def run(self) -> Run:
        """Return the finished run."""
        steps = range(1, self.step + 1)
        looked = dict(self.validation)
        history = pd.DataFrame(
            {
                "model": self.name,
                "seed": self.seed,
                "step": steps,
                "tokens": [s * self.settings.batch * self.settings.sequence for s in steps],
                "training_loss": self.losses,
                "validation_loss": [looked.get(s, float("nan")) for s in steps],
            }
        )
        return Run(self.model.cpu().eval(), history, self.seconds, parameters(self.model))
