"""Execute chapters again whenever anything that their numbers depend on has changed.

jupyter-cache compares code cells alone, so after an edit of the library it would go on serving the old numbers. Here
each state of the library, of the pinned versions, of the ledger and of the device has a cache of its own: a change of
prose executes nothing, a change of the library executes everything, and undoing it brings back the old results. The
path of the cache is part of Sphinx's environment, so pages are read again as well.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ConfigError

KEPT = 5  # caches; enough to go back and forth between a few states, a few megabytes each
CACHE_FOLDER = ".jupyter_cache"

#: What computes and draws. Hashed as installed, since an environment can differ from the lock file.
DISTRIBUTIONS = (
    "numpy",
    "torch",
    "scipy",
    "pandas",
    "altair",
    "vl-convert-python",
    "myst-nb",
    "pillow",
    "tokenizers",
    "noto-cjk-sans-jp-regular",
)


def _files(library: Path, root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files that numbers depend on, each with a name that is the same on every machine."""
    for path in sorted(library.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(library.parent).as_posix(), path
    for path in (root / "requirements.lock", root / "book" / "claims.yml", *sorted((root / "book").glob("data/*"))):
        if path.is_file():
            yield path.relative_to(root).as_posix(), path


def _library_and_device() -> tuple[Path, str]:
    """Return where the library that the cells import lies, and the device and training setting that they use."""
    try:
        import memstore_lib
        from memstore_lib.device import default_device
        from memstore_lib.language_models.settings import choose
    except ImportError as error:
        raise ConfigError(f"the book needs the package memstore_lib (pip install -e .): {error}") from error
    try:
        return Path(memstore_lib.__file__).parent, f"{default_device()} {choose().name}"
    except ValueError as error:
        raise ConfigError(str(error)) from error


def fingerprint(root: Path) -> str:
    """Return a hash over everything that the book's numbers depend on.

    Args:
        root: the root of the repository.
    """
    library, device = _library_and_device()
    parts = [platform.python_version(), device]
    parts += [f"{name} {metadata.version(name)}" for name in DISTRIBUTIONS]
    parts += [f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for name, path in _files(library, root)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def prune(caches: Path, current: Path) -> None:
    """Delete all but the most recently used caches.

    Args:
        caches: the folder that holds them.
        current: the one this build uses, which may not exist yet and always stays.
    """
    others = [path for path in caches.iterdir() if path.is_dir() and path != current]
    others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in others[KEPT - 1 :]:
        shutil.rmtree(path)


def place_cache(app: Sphinx, config: Config) -> None:
    """Put the execution cache under the fingerprint; a path set by the author in ``_config.yml`` is its parent."""
    caches = Path(config.nb_execution_cache_path or Path(app.outdir).parent / CACHE_FOLDER).absolute()
    cache = caches / fingerprint(Path(app.srcdir))
    cache.mkdir(parents=True, exist_ok=True)
    cache.touch()  # the newest are kept
    prune(caches, cache)
    config.nb_execution_cache_path = str(cache)


def setup(app: Sphinx) -> None:
    """Connect the cache to Sphinx."""
    app.connect("config-inited", place_cache)
