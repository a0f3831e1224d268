"""A pytest plug-in that ends a run when the process that started it ends.

A killed worker does not end its cell, which would continue while another worker starts the
same one.  So the run's standard input is a pipe that nobody writes to: when it closes, the
process at the other end has ended.
"""

from __future__ import annotations

import os
import signal
import threading

# Duplicated before pytest replaces it by another file.
_PIPE = os.dup(0)


def _end_with_the_parent() -> None:
    while os.read(_PIPE, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


threading.Thread(target=_end_with_the_parent, daemon=True).start()
