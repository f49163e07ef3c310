"""Which device the book computes on, and what a chapter cost there.

The order is CUDA, else MPS, else CPU; the environment variable ``MEMSTORE_DEVICE`` overrides it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

import torch

ENVIRONMENT_VARIABLE = "MEMSTORE_DEVICE"
KNOWN = ("cuda", "mps", "cpu")


def _available(kind: str) -> bool:
    if kind == "cuda":
        return torch.cuda.is_available()
    if kind == "mps":
        return torch.backends.mps.is_available()
    return True


def resolve(device: str | torch.device | None = None) -> torch.device:
    """Return the device asked for, or the default one for ``None``.

    Args:
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``, a ``torch.device``, or None for
            :func:`default_device`.

    Raises:
        ValueError: the name is unknown, or this machine has no such device.
        TypeError: the argument is neither a name nor a device.
    """
    if device is None:
        return default_device()
    return _parse(device, "device")


def _parse(device: object, argument: str) -> torch.device:
    if not isinstance(device, (str, torch.device)):
        raise TypeError(f"{argument} must be a device name or torch.device, got {type(device).__name__}")
    try:
        parsed = torch.device(device)
    except RuntimeError:
        parsed = None
    if parsed is None or parsed.type not in KNOWN:
        raise ValueError(f"{argument} must be one of {', '.join(KNOWN)}, got {str(device)!r}")
    if not _available(parsed.type):
        raise ValueError(f"{argument} asks for {parsed.type}, which this machine does not have; use 'cpu'")
    if parsed.type == "cuda" and parsed.index is not None and parsed.index >= torch.cuda.device_count():
        raise ValueError(
            f"{argument} asks for {parsed}, but this machine has {torch.cuda.device_count()} CUDA device(s)"
        )
    return parsed


def default_device() -> torch.device:
    """Return CUDA, else MPS, else the CPU; ``MEMSTORE_DEVICE`` overrides.

    Raises:
        ValueError: ``MEMSTORE_DEVICE`` holds an unknown name or a device that is not there.
    """
    wish = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    if wish:
        return _parse(wish, ENVIRONMENT_VARIABLE)
    return torch.device(next(kind for kind in KNOWN if _available(kind)))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one CPU thread for a while; also a decorator.

    Measurements make thousands of products of small matrices. Several threads wait for one another there longer than
    they work, many times longer on a busy machine or where a container sees the cores of its host.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Keep TF32 out of the matrix products of float32 on CUDA for a while, whatever torch is set to.

    TF32 keeps 10 bits of a factor. A similarity would be off by about 1e-3, and an exponential score of β = 25 by 5 %.
    """
    try:
        asked, turn = torch.get_float32_matmul_precision(), torch.set_float32_matmul_precision
        exact = "highest"
    except RuntimeError:  # TF32 was turned on by the newer settings, beside which torch refuses to tell the older one
        asked, turn = torch.backends.cuda.matmul.fp32_precision, _set_precision
        exact = "ieee"
    if asked == exact:
        yield
        return
    turn(exact)
    try:
        yield
    finally:
        turn(asked)


def _set_precision(name: str) -> None:
    torch.backends.cuda.matmul.fp32_precision = name


def describe() -> dict[str, str]:
    """Return the device in words: its name, how it was chosen, and how many threads torch uses."""
    device = default_device()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
    chosen = ENVIRONMENT_VARIABLE if os.environ.get(ENVIRONMENT_VARIABLE, "").strip() else "automatically"
    return {"device": str(device), "name": name, "chosen": chosen, "threads": str(torch.get_num_threads())}


def peak_memory_mb() -> float:
    """Return the peak resident memory of this process in MB (10⁶ bytes), NaN where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows has no resource module
        return float("nan")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6  # macOS counts bytes, Linux KiB


def peak_device_memory_mb() -> float:
    """Return the peak memory torch held on the CUDA device in MB (10⁶ bytes); 0 on other devices."""
    device = default_device()
    return torch.cuda.max_memory_allocated(device) / 1e6 if device.type == "cuda" else 0.0
