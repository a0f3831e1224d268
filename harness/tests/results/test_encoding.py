"""Records as JSON, read by several threads at once as xdist reads what its workers send."""

from __future__ import annotations

import subprocess
import sys

ROUNDS = """
import sys, threading
from msgspec import defstruct
from assay.harness.results.encoding import decode

def read(kind):
    barrier.wait()
    read_back.append(decode('{"f7": {"a": 3}}', kind).f7.a)

sys.setswitchinterval(1e-6)
for _ in range(100):
    parts = [defstruct(f"Part{i}", [(f, int, 0) for f in "abcdef"]) for i in range(20)]
    kind = defstruct("Whole", [(f"f{i}", part | None, None) for i, part in enumerate(parts)])
    barrier, read_back = threading.Barrier(4), []
    threads = [threading.Thread(target=read, args=[kind]) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert read_back == [3] * 4
"""


def test_threads_read_a_new_kind_of_record_at_once():
    # In a process of its own: msgspec's crash would end this one.
    run = subprocess.run([sys.executable, "-c", ROUNDS], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
