"""Training several models with several seeds, two or more at a time on a CPU, and keeping what was trained."""

from __future__ import annotations

import dataclasses
import hashlib
import multiprocessing
import os
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from memstore_lib import _checks
from memstore_lib.device import one_thread, resolve
from memstore_lib.language_models import corpus as corpora
from memstore_lib.language_models.corpus import Corpus
from memstore_lib.language_models.settings import Settings
from memstore_lib.language_models.training import Run, identity, progress_bar, train

WORKERS_VARIABLE = "MEMSTORE_WORKERS"
MOST_WORKERS = 4  # each takes half a gigabyte


def default_workers() -> int:
    """Return how many runs a CPU trains at once: ``MEMSTORE_WORKERS``, else one for each core of this process, up to 4.

    A container may be allowed less than the cores that it sees, and less memory than so many runs take.

    Raises:
        ValueError: the variable is not a whole number of at least 1.
    """
    given = os.environ.get(WORKERS_VARIABLE, "").strip()
    if given:
        if not given.isdecimal() or int(given) < 1:
            raise ValueError(f"{WORKERS_VARIABLE} must be a whole number of at least 1, got {given!r}")
        return int(given)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_WORKERS, cores)


def one_at_a_time(device: str | torch.device | None = None) -> bool:
    """Return whether runs follow one another on a single core, so that many of them would take long.

    Args:
        device: as for :func:`memstore_lib.device.resolve`.
    """
    return resolve(device).type == "cpu" and default_workers() == 1


def seeds(settings: Settings, device: str | torch.device | None = None) -> range:
    """Return the seeds that a chapter trains each model with: those of the settings, one if runs take turns on a core.

    Args:
        settings: of the runs.
        device: as for :func:`memstore_lib.device.resolve`.
    """
    return range(1 if one_at_a_time(device) else settings.seeds)


def default_folder() -> Path:
    """Return where a book keeps its checkpoints: beside the corpus, in its build folder."""
    return corpora.default_folder().parent / "training"


def checkpoint_path(folder: str | Path, name: str, settings: Settings, corpus: Corpus, seed: int) -> Path:
    """Return where :func:`train_all` keeps a run: its name tells settings, model and seed.

    The last part changes with everything the run depends on, so that a change of the code trains anew.
    """
    key = hashlib.sha256(identity(name, settings, corpus, seed).encode()).hexdigest()[:8]
    return Path(folder) / f"{settings.name}-{name.replace(', ', '-').replace(' ', '_')}-seed{seed}-{key}.pt"


def train_all(
    names: Sequence[str],
    settings: Settings,
    corpus: Corpus,
    *,
    seeds: Iterable[int],
    folder: str | Path | None = None,
    device: str | torch.device | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> dict[tuple[str, int], Run]:
    """Train several models with several seeds, or read those that are already trained.

    On a CPU each run has a process and one thread of its own, which is faster than one run with two threads; elsewhere
    runs follow one another in this process.

    Args:
        names, seeds: every model is trained with every seed.
        settings, corpus: of all of them.
        folder: where checkpoints are kept; :func:`default_folder` if None. A second call with the same arguments
            trains nothing.
        device: as for :func:`memstore_lib.device.resolve`.
        workers: processes; :func:`default_workers` if None.
        progress: whether to show a bar of finished runs; None as for
            :func:`~memstore_lib.language_models.training.train`.

    Returns:
        Runs by (model, seed), models first.

    Raises:
        ValueError, CheckpointError, FloatingPointError: as :func:`~memstore_lib.language_models.training.train`.
    """
    device = resolve(device)
    known = [_checks.integer("seeds", seed, minimum=0) for seed in seeds]
    jobs = [(name, seed) for name in names for seed in known]
    if not jobs:
        raise ValueError(f"names and seeds must hold at least one each, got {len(list(names))} and {len(known)}")
    folder = default_folder() if folder is None else Path(folder)
    paths = {job: checkpoint_path(folder, job[0], settings, corpus, job[1]) for job in jobs}
    workers = _checks.integer("workers", workers) if workers is not None else default_workers()
    unfinished = [job for job in jobs if not _finished(paths[job], settings)]
    spread = device.type == "cpu" and workers > 1 and len(unfinished) > 1
    quiet = {"progress": False if spread else progress}
    if spread:
        # Spawned, not forked: a copy of a process that has threads may hang.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(workers, len(unfinished)), mp_context=context) as pool:
            # As arrays: tensors would travel through shared memory, of which containers have little.
            packed = dataclasses.replace(corpus, train=corpus.train.numpy(), validation=corpus.validation.numpy())
            waiting = [pool.submit(_work, job, settings, packed, paths[job]) for job in unfinished]
            for future in progress_bar(waiting, f"{settings.name} runs", 0, len(waiting), progress):
                future.result()
    found = {}
    with one_thread():
        for job in jobs:
            found[job] = train(job[0], settings, corpus, seed=job[1], device=device, checkpoint=paths[job], **quiet)
            _prune(paths[job])
    return found


def _finished(path: Path, settings: Settings) -> bool:
    """Return whether a checkpoint holds a whole run; what is wrong with a bad one :func:`train` will say."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)["step"] >= settings.steps
    except Exception:  # not there, or damaged, which can raise nearly anything
        return False


def _prune(path: Path) -> None:
    """Keep the checkpoint and the newest of those that other code, corpora or versions left of the same run."""
    others = [other for other in path.parent.glob(f"{path.stem[:-8]}*.pt") if other != path]
    for old in sorted(others, key=lambda other: other.stat().st_mtime, reverse=True)[1:]:
        old.unlink(missing_ok=True)


def _end_with_parent() -> None:
    """End this process when the one that started it is gone: a build that was stopped leaves nothing running."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(job: tuple[str, int], settings: Settings, packed: Corpus, path: Path) -> None:
    """Train in a process of its own; the checkpoint brings the run back."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    tokens = {name: torch.from_numpy(getattr(packed, name)) for name in ("train", "validation")}
    train(
        job[0],
        settings,
        dataclasses.replace(packed, **tokens),
        seed=job[1],
        device="cpu",
        checkpoint=path,
        progress=False,
    )
