"""``python -m memstore_lib.sharding``; see :mod:`memstore_lib.sharding.command`."""

from memstore_lib.sharding.command import main

if __name__ == "__main__":
    main()
