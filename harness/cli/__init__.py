"""The commands of `assay`, a module for each.

A command's module has ``main(arguments)``, or ``main(arguments, x)`` with the function x that it
needs from outside the harness, for example to load a model (`harness.cli.main`).  It returns
the exit code.  For invalid input it raises `BadInput`, whose line `harness.cli.main` prints.
"""

BAD_INPUT, INTERRUPTED, READER_GONE = 4, 130, 1
"""Exit codes of every command.  0 and 1 are its answer: success, or a failed check."""
