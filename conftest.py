"""Loads Assay's plug-ins from this clone, even if another copy of Assay is installed."""

import sys
from pathlib import Path

PACKAGE = Path(__file__).parent / "harness" / "package"

if str(PACKAGE / "assay") not in getattr(sys.modules.get("assay"), "__path__", ()):
    for name in [name for name in sys.modules if name.partition(".")[0] == "assay"]:
        del sys.modules[name]
    sys.path.insert(0, str(PACKAGE))

pytest_plugins = ["assay.harness.plugin.hooks", "assay.fixtures.subjects"]
