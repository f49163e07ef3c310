"""Which device is used, and how a device that is not there is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from memstore_lib import device, memories

# A test parametrised by these runs on every kind of device that this machine has.
DEVICES = ["cpu"]
if torch.cuda.is_available():
    DEVICES.append(pytest.param("cuda", marks=pytest.mark.cuda))
if torch.backends.mps.is_available():
    DEVICES.append("mps")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small matrices: several threads would wait for one another longer than they work."""
    with device.one_thread():
        yield


@pytest.fixture(autouse=True)
def no_override(monkeypatch):
    monkeypatch.delenv(device.ENVIRONMENT_VARIABLE, raising=False)


def only(monkeypatch, *kinds: str) -> None:
    """Pretend that the machine has these kinds of devices."""
    monkeypatch.setattr(device, "_available", lambda kind: kind in kinds)


@pytest.mark.parametrize(
    ("there", "chosen"),
    [(("cuda", "mps", "cpu"), "cuda"), (("cuda", "cpu"), "cuda"), (("mps", "cpu"), "mps"), (("cpu",), "cpu")],
)
def test_default_is_cuda_else_mps_else_cpu(monkeypatch, there, chosen):
    only(monkeypatch, *there)
    assert device.default_device() == torch.device(chosen)
    assert device.resolve() == device.resolve(None) == torch.device(chosen)


@pytest.mark.parametrize("wish", ["cpu", " cpu", "cpu\n", "\tcpu  "])
def test_environment_overrides_and_may_have_spaces(monkeypatch, wish):
    only(monkeypatch, "cuda", "mps", "cpu")
    monkeypatch.setenv("MEMSTORE_DEVICE", wish)
    assert device.default_device() == torch.device("cpu")
    assert device.resolve(None) == torch.device("cpu")


@pytest.mark.parametrize("empty", ["", "   "])
def test_an_empty_override_is_none(monkeypatch, empty):
    only(monkeypatch, "cpu")
    monkeypatch.setenv("MEMSTORE_DEVICE", empty)
    assert device.default_device() == torch.device("cpu")
    assert device.describe()["chosen"] == "automatically"


def test_an_argument_goes_before_the_environment(monkeypatch):
    only(monkeypatch, "mps", "cpu")
    monkeypatch.setenv("MEMSTORE_DEVICE", "mps")
    assert device.resolve("cpu") == torch.device("cpu")
    assert device.resolve(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.parametrize("name", ["gpu", "CUDA", "xla", "meta", "cuda:x", "cuda:-1", "cpu,cuda", "tpu:0"])
def test_unknown_names_are_refused(monkeypatch, name):
    with pytest.raises(ValueError, match=rf"device must be one of cuda, mps, cpu, got '{name}'"):
        device.resolve(name)
    monkeypatch.setenv("MEMSTORE_DEVICE", f" {name} ")
    for ask in (device.default_device, device.resolve, device.describe, lambda: memories.unit_keys(3, 2, seed=0)):
        with pytest.raises(ValueError, match=rf"MEMSTORE_DEVICE must be one of cuda, mps, cpu, got '{name}'"):
            ask()


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "mps"])
def test_a_device_that_is_not_there_is_refused(monkeypatch, name):
    only(monkeypatch, "cpu")
    kind = name.partition(":")[0]
    with pytest.raises(ValueError, match=f"device asks for {kind}, which this machine does not have; use 'cpu'"):
        device.resolve(name)
    with pytest.raises(ValueError, match=f"device asks for {kind}"):
        device.resolve(torch.device(name))
    monkeypatch.setenv("MEMSTORE_DEVICE", name)
    with pytest.raises(ValueError, match=f"MEMSTORE_DEVICE asks for {kind}, which this machine does not have"):
        device.default_device()


def test_one_thread_for_a_while():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with device.one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        with pytest.raises(KeyError), device.one_thread():
            raise KeyError
        assert torch.get_num_threads() == 2
        assert device.one_thread()(torch.get_num_threads)() == 1
    finally:
        torch.set_num_threads(before)


def test_a_cuda_index_beyond_the_last_is_refused(monkeypatch):
    only(monkeypatch, "cuda", "cpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device.resolve("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ValueError, match=r"device asks for cuda:2, but this machine has 2 CUDA device"):
        device.resolve("cuda:2")


@pytest.mark.parametrize("wrong", [0, 1.5, b"cpu", ["cpu"], torch.float32])
def test_a_device_of_another_type_is_a_type_error(wrong):
    with pytest.raises(TypeError, match=f"device must be a device name or torch.device, got {type(wrong).__name__}"):
        device.resolve(wrong)


def test_description_says_how_the_device_was_chosen(monkeypatch):
    assert device.describe()["chosen"] == "automatically"
    monkeypatch.setenv("MEMSTORE_DEVICE", "cpu")
    words = device.describe()
    assert words == {
        "device": "cpu",
        "name": "CPU",
        "chosen": "MEMSTORE_DEVICE",
        "threads": str(torch.get_num_threads()),
    }


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compares with Linux's /proc")
def test_peak_memory_is_in_millions_of_bytes():
    lines = Path("/proc/self/status").read_text(encoding="utf8").splitlines()
    kib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    assert device.peak_memory_mb() == pytest.approx(kib * 1024 / 1e6, rel=0.02)


def test_device_memory_is_zero_on_the_cpu(monkeypatch):
    monkeypatch.setenv("MEMSTORE_DEVICE", "cpu")
    assert device.peak_device_memory_mb() == 0.0


@pytest.mark.parametrize("name", DEVICES)
def test_draws_land_on_the_device(monkeypatch, name):
    monkeypatch.setenv("MEMSTORE_DEVICE", name)
    assert memories.unit_keys(5, 3, seed=0).device.type == name
    assert memories.unit_keys(5, 3, seed=0, device=name).device.type == name
    assert device.describe()["device"] == name


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_device_memory_is_counted_on_cuda():
    before = device.peak_device_memory_mb()
    block = torch.empty(50_000_000, dtype=torch.uint8, device="cuda")
    assert device.peak_device_memory_mb() >= max(50, before)
    del block
