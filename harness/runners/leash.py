"""A pytest plug-in that ends a run when the process that started it ends.

A worker that is killed takes nothing with it; its cell would go on while another worker begins
the same one.  So the run is begun with a pipe for its standard input that nobody writes to: when
it closes, whoever held the other end is gone.
"""

from __future__ import annotations

import os
import signal
import threading

# Taken before pytest puts another file in its place.
_PIPE = os.dup(0)


def _end_with_the_parent() -> None:
    while os.read(_PIPE, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


threading.Thread(target=_end_with_the_parent, daemon=True).start()
