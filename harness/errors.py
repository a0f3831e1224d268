"""The one kind of error that a user can mend: a clear line and exit code 4."""

from __future__ import annotations


class BadInput(Exception):
    """Something given to Assay cannot be used; the message is one line that says what and why."""
