"""The atlas: one offline page of results, model types × laws × versions."""

from assay.harness.report.atlas.building import build

__all__ = ["build"]
