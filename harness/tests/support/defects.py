"""The docstring of a script that shows a defect."""

from __future__ import annotations

DOCSTRING = '''"""A static cache loses its first token.

Claims: C2 [static], C5
Types: mamba, gemma*
Met by: everyone
Seen in: transformers 4.57.1, 5.0.0rc1
Expected: the same logits
Observed: others
Cause: what `cache_position` says
    is read too early.
Fix: none, because it is made up
Upstream: not reported
"""
'''
