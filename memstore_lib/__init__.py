"""memstore_lib: three ways to store key-value memories, and one yardstick for all of them.

Data flows one way: memories -> score -> store -> measure -> claims, with ``theory`` beside ``measure`` and
``figures`` at the end. A glossary that holds in every module::

    K   keys,    (M, d_k)   one stored memory a row
    V   values,  (M, d_v)   what each key recalls
    q   query,   (d_k,)     what the store is asked with; many queries are (n, d_k)
    s   score,   k . q      the similarity of a key and a query
"""

from memstore_lib import (
    claims,
    contracts,
    delta_rule,
    device,
    measure,
    memories,
    scores,
    sharpness,
    spectrum,
    stores,
    tables,
    theory,
)

__version__ = "0.1.0"

__all__ = [
    "claims",
    "contracts",
    "delta_rule",
    "device",
    "measure",
    "memories",
    "scores",
    "sharpness",
    "spectrum",
    "stores",
    "tables",
    "theory",
]
