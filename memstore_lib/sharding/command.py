"""Measure interference from the shell, on one process or with torchrun on many.

  memstore --memories 2^24 --scores exp,relu2 --rules su,yarn --output results.csv

  torchrun --standalone --nproc-per-node 4 -m memstore_lib.sharding \\
      --memories 2^30 --rules su --replicates 4 --checkpoint kept --output results.csv

One pass over the keys serves all scores, rules, cosines and numbers of memories. With --checkpoint the same command, on
any number of ranks, goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import pandas as pd

from memstore_lib.sharding import names, results
from memstore_lib.sharding.job import Job
from memstore_lib.sharding.measuring import Miscounted, Progress, measure
from memstore_lib.sharding.numbers import several, whole_number
from memstore_lib.sharding.ranks import PATIENCE, FirstFailed, LostContact, Ranks, opened


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _path(text: str) -> Path:
    if not text.strip() or "\0" in text:
        raise argparse.ArgumentTypeError(f"must be the name of a file or folder, got {text!r}")
    return Path(text)


def _parser() -> argparse.ArgumentParser:
    """Return the command's arguments."""
    known = f"scores: {', '.join(names.SCORES)}, exp=BETA; rules: {', '.join(names.RULES)}"
    made = argparse.ArgumentParser(
        prog="memstore" if _alone() else "torchrun ... -m memstore_lib.sharding",
        description=__doc__,
        epilog=f"Numbers may be written as 2**30, 2^30, 1e9 or 1_000_000. {known}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = made.add_argument_group("what to measure")
    what.add_argument(
        "--memories", type=several(whole_number), required=True, metavar="M[,M...]",
        help="numbers of memories; with a single one also the powers of two from 16 up to it, which cost nothing",
    )  # fmt: skip
    what.add_argument("--scores", type=_words, default=[], metavar="NAME,...", help="scores, by name")
    what.add_argument("--rules", type=_words, default=[], metavar="NAME,...", help="rules for the sharpness, by name")
    what.add_argument(
        "--dimension", "--d", dest="d", type=whole_number, default=64,
        help="key dimension d (default: 64); torchrun takes --d for an option of its own",
    )  # fmt: skip
    what.add_argument("--beta", type=float, help="reference sharpness of exp and of the rules (default: sqrt(d))")
    what.add_argument("--length", type=float, default=1024, help="reference length of the rules (default: 1024)")
    what.add_argument(
        "--cosines", type=several(float), default=[1.0], metavar="C[,C...]",
        help="cosines between query and key (default: 1); a first one below 0 wants --cosines=-0.5,0.5",
    )  # fmt: skip
    what.add_argument("--queries", type=whole_number, default=64, help="queries a replicate (default: 64)")
    what.add_argument(
        "--replicates", type=whole_number, default=20,
        help="replicates with keys of their own, at least 2; each is a pass over all keys (default: 20)",
    )  # fmt: skip
    what.add_argument("--seed", type=whole_number, default=0, help="of all draws (default: 0)")
    how = made.add_argument_group("how to run")
    how.add_argument("--output", type=_path, required=True, metavar="FILE", help="results, .csv or .json; replaced")
    how.add_argument("--checkpoint", type=_path, metavar="FOLDER", help="keep what is counted here, and go on from it")
    how.add_argument("--every", type=float, default=60.0, metavar="S", help="seconds between checkpoints (default: 60)")
    how.add_argument("--device", help="cuda, mps or cpu; the best there is if not given")
    how.add_argument(
        "--backend",
        choices=("gloo", "nccl"),
        help="gloo or nccl; with several ranks, NCCL on CUDA and gloo elsewhere if not given",
    )
    how.add_argument(
        "--patience", type=float, default=PATIENCE, metavar="S",
        help=f"seconds that a rank waits for another one (default: {PATIENCE:g})",
    )  # fmt: skip
    how.add_argument("--quiet", action="store_true", help="no progress bar")
    return made


def _job(given: argparse.Namespace) -> Job:
    beta = math.sqrt(given.d) if given.beta is None else given.beta
    grid = sorted(set(given.memories))
    if len(grid) == 1:
        grid = [*(1 << k for k in range(4, 1024) if 1 << k < grid[0]), *grid] if grid[0] < 1 << 1000 else grid
    entries = names.chosen(given.scores, given.rules, beta=beta, L=given.length)
    return Job(
        entries, grid, d=given.d, queries=given.queries, replicates=given.replicates, cosines=given.cosines,
        seed=given.seed,
    )  # fmt: skip


#: What the library calls an option by another name.
OPTIONS = {"grid": "memories", "d": "dimension", "L": "length"}


def _in_options(message: str) -> str:
    """Return a message of the library with the name of the option that it is about."""
    return re.sub(r"^(grid|d|L)(?=\W)", lambda found: OPTIONS[found[1]], message)


def _apart(output: Path, checkpoint: Path | None) -> None:
    """Refuse an output that is the checkpoint's folder, or one around it."""
    if checkpoint is not None:
        output, checkpoint = output.resolve(), checkpoint.resolve()
        if output == checkpoint or output in checkpoint.parents:
            raise ValueError(f"output must be a file apart from the folder checkpoint, got {output} and {checkpoint}")


def _alone() -> bool:
    return "RANK" not in os.environ


def _ready_streams() -> None:
    """Have both streams take any text: a closed one, or one that knows few letters, must not end a measurement."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the results; ends the process with a message where that cannot be done."""
    arguments = sys.argv[1:] if arguments is None else arguments
    _ready_streams()
    with contextlib.ExitStack() as silence:
        if not _speaks():  # every rank sees the same arguments: one complaint about them is enough
            silence.enter_context(contextlib.redirect_stderr(None))
            silence.enter_context(contextlib.redirect_stdout(None))
        given = _parser().parse_args(arguments)
    try:
        job = _job(given)
        _apart(given.output, given.checkpoint)
    except (ValueError, TypeError) as error:
        _leave(error, _in_options(str(error)), aloud=_speaks(), status=2)
    if os.environ.get("RANK") is not None and hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_wait_for_the_end, args=(given.checkpoint,), daemon=True).start()
    try:
        _run(job, given)
    except FirstFailed as error:
        _leave(error, str(error), aloud=False)
    except KeyboardInterrupt as error:
        _leave(error, "stopped from the keyboard" + _kept(given.checkpoint), aloud=True, status=130)
    except (ValueError, TypeError) as error:
        _leave(error, _in_options(str(error)), aloud=True)
    except Miscounted as error:
        _leave(error, f"{error}; if a checkpoint is used, it is not one of this command", aloud=True)
    except (OSError, LostContact) as error:
        _leave(error, str(error) + _kept(given.checkpoint), aloud=True)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate" not in str(error):
            raise
        asked = f"queries and dimension must fit the memory of this machine, got {job.queries} and {job.d}"
        _leave(error, asked + _kept(given.checkpoint), aloud=True)


def _kept(checkpoint: Path | None) -> str:
    if checkpoint is None:
        return "; without --checkpoint nothing is kept"
    if not (checkpoint / "state.npz").is_file():
        return f"; {checkpoint} holds nothing yet"
    return f"; what {checkpoint} holds is whole, and the same command goes on from it"


def _wait_for_the_end(checkpoint: Path | None) -> None:
    """End this rank when torchrun says so, with a word to the user; a handler would wait while the others are awaited.

    Torchrun does so when another rank has died.
    """
    signal.sigwait({signal.SIGTERM})
    print(f"memstore: rank {os.environ['RANK']} is stopped: another rank has failed, or the run was ended from outside"
          f"{_kept(checkpoint)}", file=sys.stderr, flush=True)  # fmt: skip
    os._exit(128 + signal.SIGTERM)


def _speaks() -> bool:
    rank = os.environ.get("RANK", "0")
    return "WORLD_SIZE" not in os.environ or not rank.isdecimal() or int(rank) == 0


def _leave(error: BaseException, words: str, *, aloud: bool, status: int = 1) -> NoReturn:
    """Say what is wrong, to the user and to torchrun, whose closing report repeats it."""
    rank = os.environ.get("RANK")
    if rank is not None:
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler

        get_error_handler().record_exception(error)
    if aloud:
        print(f"memstore: error{f' on rank {rank}' if rank is not None else ''}: {words}", file=sys.stderr, flush=True)
    sys.exit(status)


def _run(job: Job, given: argparse.Namespace) -> None:
    with opened(given.device, backend=given.backend, patience=given.patience) as ranks:
        ranks.first(lambda: _check(job, given))
        start = time.monotonic()
        with _bar(job, quiet=given.quiet or ranks.rank > 0) as progress:
            found = measure(job, ranks, checkpoint=given.checkpoint, every=given.every, progress=progress)
        if found is not None:
            _save(results.tidy(job, *found), given)
            _say(_closing(job, ranks, time.monotonic() - start, given.output))


def _check(job: Job, given: argparse.Namespace) -> None:
    """Refuse what would fail only when all is counted."""
    results.check_writable(given.output)
    if given.checkpoint is not None and (given.checkpoint.is_dir() or not given.checkpoint.exists()):
        results.probe(given.checkpoint, "checkpoint")
    results.check_laws(job)


def _say(line: str) -> None:
    """Print a line where somebody reads; the results are written whether or not somebody does."""
    try:
        print(line, flush=True)
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # else Python tries once more at its end


def _save(table: pd.DataFrame, given: argparse.Namespace) -> None:
    try:
        results.write(table, given.output)
    except OSError:
        if given.checkpoint is None:  # hours of counting are not to be lost for want of a file
            print(results.as_text(table, given.output.suffix))
        raise


def _closing(job: Job, ranks: Ranks, seconds: float, output: Path) -> str:
    met = f"{job.replicates} × {job.grid[-1]:,} memories at d = {job.d}, {job.queries} queries a replicate"
    where = f"{ranks.size} rank{'s' if ranks.size > 1 else ''} on {ranks.device.type}"
    return f"{output}: {met}, {seconds:.1f} s on {where}"


@contextlib.contextmanager
def _bar(job: Job, *, quiet: bool) -> Iterator[Progress]:
    from tqdm import tqdm

    # None: no bar where nobody looks, as in a file or a pipe.
    with tqdm(total=job.keys, unit="key", unit_scale=True, disable=True if quiet else None) as bar:
        yield lambda done: bar.update(max(0, done - bar.n))
