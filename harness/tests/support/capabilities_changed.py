"""For maintainers: capabilities that types gained and lost between two recorded versions.

``python harness/tests/support/capabilities_changed.py 5.23 5.24``
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence

from assay.fixtures.families import offers


def changed(
    before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """The types by ``lost NAME`` or ``gained NAME``; and those that are ``new`` or ``gone``."""
    rows: dict[str, list[str]] = defaultdict(list)
    for key in sorted(before.keys() | after.keys()):
        if key not in before or key not in after:
            rows["new" if key in after else "gone"].append(key)
            continue
        old, new = set(before[key]), set(after[key])
        for name in sorted(old ^ new):
            rows[f"{'lost' if name in old else 'gained'} {name}"].append(key)
    return dict(rows)


if __name__ == "__main__":
    for what, types in changed(*(offers.recorded(each) for each in sys.argv[1:3])).items():
        print(f"{what} ({len(types)}): {', '.join(types)}")
