"""Checkpoints: what has been counted, in files that are whole at any moment, whoever is killed.

::

    .lock                held by rank 0 of the run under way
    state.npz            written by rank 0: the replicate's counts so far, results, stage, and a token
    part-TOKEN-RANK.npz  written by each rank: counts of the blocks that it has met since that state

The one moment at which anything changes is when a new state takes the place of the old one. Parts carry the token of
the state that they add to, and each state has a new token; so parts that a new state has absorbed do not count any more
from that moment on, and parts of a state that was never written never count.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import secrets
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from memstore_lib._files import UNFINISHED, whole
from memstore_lib.sharding.spans import Span, union

try:
    import fcntl
except ImportError:  # Windows has none
    fcntl = None  # type: ignore[assignment]

#: What reading a damaged file, or one of another program, may raise.
DAMAGED = (zipfile.BadZipFile, ValueError, KeyError, TypeError, AttributeError, EOFError)
#: Files of this module that a new state makes useless; the folder may hold others.
_LEFT_OVER = re.compile(rf"part-[0-9a-f]{{16}}-\d+\.npz|{re.escape(UNFINISHED)}.*\.part")


@dataclass
class State:
    """How far a measurement has come.

    Attributes:
        counts: (queries, bins), of the current replicate.
        stage: number of the stage under way.
        done: spans of its blocks that are in the counts.
        rows, attention: results of the stages before.
        token: of the checkpoint that holds this state.
    """

    counts: np.ndarray
    stage: int = 0
    done: list[Span] = field(default_factory=list)
    rows: list[list] = field(default_factory=list)
    attention: list[list] = field(default_factory=list)
    token: str = ""


class Folder:
    """A folder with the checkpoint of one measurement, which all ranks can see.

    Args:
        path: the folder; made if it is not there.
        parameters: of the measurement.
    """

    def __init__(self, path: str | Path, parameters: dict[str, object]) -> None:
        self.path, self.parameters = Path(path), parameters

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs out of the folder for a while.

        Raises:
            ValueError: another run is in it, or it is no folder.
            OSError: it cannot be made or written.
        """
        self._is_folder()
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("a") as lock:
            try:
                if fcntl is not None:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process, however it ends
            except BlockingIOError:
                raise ValueError(
                    f"checkpoint {self.path} must be free, but another run is using it: wait, or give another folder"
                ) from None
            yield

    def _is_folder(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"checkpoint must be a folder, got the file {self.path}")

    def load(self) -> State | None:
        """Return the state with all parts that belong to it, or None where there is none.

        Raises:
            ValueError: a checkpoint of other parameters, or a damaged one.
            OSError: the folder cannot be read.
        """
        self._is_folder()
        if not self._state.exists():
            return None
        try:
            meta, counts = _read(self._state)
            state, parameters = State(counts, **meta["state"]), dict(meta["parameters"])
            state.done = union(state.done)
        except DAMAGED as error:
            raise ValueError(self.damaged(error)) from None
        self._same_parameters(parameters)
        for part in sorted(self.path.glob(f"part-{state.token}-*.npz")):
            try:
                meta, counts = _read(part)
                done, counts = union([*state.done, *meta["done"]]), state.counts + counts
            except DAMAGED as error:
                warnings.warn(f"part {part} is damaged ({error}); its blocks are counted again", stacklevel=2)
                continue
            state.done, state.counts = done, counts
        return state

    def damaged(self, reason: object) -> str:
        """Return what to say of a state that cannot be one of ours."""
        return f"checkpoint {self._state} is damaged ({reason}); remove this file to start over"

    def _same_parameters(self, found: dict[str, object]) -> None:
        if found == json.loads(json.dumps(self.parameters)):
            return
        other = [name for name in self.parameters if found.get(name) != self.parameters[name]]
        words = "; ".join(f"{name} = {found.get(name)} there, {self.parameters[name]} here" for name in other)
        raise ValueError(
            f"checkpoint {self.path} must be one of this measurement, got one of other parameters ({words}): "
            "give those, or another folder"
        )

    def commit(self, state: State) -> None:
        """Write a state under a new token, from when on no earlier part counts."""
        state.token = secrets.token_hex(8)
        meta = {name: getattr(state, name) for name in ("stage", "done", "rows", "attention", "token")}
        _write(self._state, {"parameters": self.parameters, "state": meta}, state.counts)
        for old in self.path.iterdir():
            if _LEFT_OVER.fullmatch(old.name) and state.token not in old.name:
                old.unlink(missing_ok=True)

    def token(self) -> str:
        """Return the token of the state that lies in the folder; none if there is no state."""
        return _read(self._state)[0]["state"]["token"] if self._state.exists() else ""

    def save_part(self, token: str, rank: int, done: list[Span], counts: np.ndarray) -> None:
        """Write what one rank has counted since the state of a token."""
        _write(self.path / f"part-{token}-{rank}.npz", {"done": union(done)}, counts)

    @property
    def _state(self) -> Path:
        return self.path / "state.npz"


def _write(path: Path, meta: dict[str, object], counts: np.ndarray) -> None:
    with whole(path) as file:
        np.savez(file, meta=np.array(json.dumps(meta)), counts=counts)
        file.flush()
        os.fsync(file.fileno())  # before it takes the old one's place, so that a power cut does not leave it empty


def _read(path: Path) -> tuple[dict, np.ndarray]:
    with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
        return json.loads(str(file["meta"])), file["counts"]
