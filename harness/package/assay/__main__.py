"""Runs `assay COMMAND` as `python -m assay COMMAND`."""

import sys

from assay.harness.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
