"""The program behind the claims: runs them on models, decides verdicts, keeps and shows them."""

import os

__version__ = "0.3.0"

# Transformers reads this when it is imported.  Where the package kernels is installed, it would
# fetch code from the hub for some types, wherever their weights come from, and run it.
os.environ.setdefault("USE_HUB_KERNELS", "NO")
