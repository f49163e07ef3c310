"""Four small language models, the corpus they read and how they are trained: the aside on shifted keys.

::

    corpus → models → training → histories → the page
                    ↘ key_quality ↗
"""
