"""Starting torchrun on this machine from Python, a notebook for example."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from memstore_lib import _checks


def command(ranks: int, arguments: Sequence[str], *, module: str = "memstore_lib.sharding") -> list[str]:
    """Return the command that runs a module on several ranks of this machine, on a free port."""
    ranks = _checks.integer("ranks", ranks)
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return [*start, "-m", module, *arguments]


def environment() -> dict[str, str]:
    """Return this process's environment, made fit for ranks that share a machine."""
    loopback = {"linux": "lo", "darwin": "lo0"}.get(sys.platform)
    # One thread a rank, as each has a core; and no other network than the machine's own is needed.
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return {**os.environ, **own, **({"GLOO_SOCKET_IFNAME": loopback} if loopback else {})}


def launch(
    ranks: int, arguments: Sequence[str], *, module: str = "memstore_lib.sharding", timeout: float = 600.0
) -> str:
    """Run a module on several ranks of this machine under torchrun, and return what it printed.

    Args:
        ranks: processes, at least 1.
        arguments: of the module's command.
        module: what to run.
        timeout: seconds after which all ranks are ended.

    Raises:
        RuntimeError: the run failed; the message ends in what it said.
        TimeoutError: it took too long.
    """
    timeout = _checks.real("timeout", timeout, low=0.0, open_low=True)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
    with subprocess.Popen(command(ranks, arguments, module=module), env=environment(), **pipes) as torchrun:
        try:
            out, err = torchrun.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            torchrun.terminate()  # which ends the ranks as well; killing torchrun would leave them behind
            raise TimeoutError(f"{module} on {ranks} ranks must end within {timeout:g} s, and did not") from None
        except BaseException:
            torchrun.terminate()
            raise
    if torchrun.returncode:
        said = [line for line in err.splitlines() if line.startswith("memstore: ")] or err.splitlines()[-20:]
        raise RuntimeError(
            f"{module} on {ranks} ranks failed with exit code {torchrun.returncode}:\n" + "\n".join(said)
        )
    return out
