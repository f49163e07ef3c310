"""Measurements that outgrow one machine: the keys are sharded over processes, which torchrun starts.

::

    rank    one of the processes; each draws and counts blocks of keys, on a core or a GPU of its own
    block   keys that are drawn from one seed, whoever draws them
    stage   the keys between one M of the grid and the next

From the shell it is ``memstore`` or ``python -m memstore_lib.sharding``; see :mod:`memstore_lib.sharding.command`. From
Python::

    with sharding.opened() as ranks:
        found = sharding.measure(job, ranks, checkpoint="kept")
"""

from memstore_lib.sharding.attention import recall
from memstore_lib.sharding.job import Job
from memstore_lib.sharding.launching import launch
from memstore_lib.sharding.measuring import measure
from memstore_lib.sharding.ranks import Ranks, opened

__all__ = ["Job", "Ranks", "launch", "measure", "opened", "recall"]
