"""The commands of `assay`, a module for each.

A command's module has ``main(arguments, load)``: it reads its arguments, is given a subject by
``load`` (`harness.cli.models.Load`), and returns the exit code.  What cannot be used it
raises as `BadInput`; `harness.cli.main` tells it in one line.
"""

BAD_INPUT, INTERRUPTED, READER_GONE = 4, 130, 1
"""Exit codes of every command.  0 and 1 are its answer: what it is about held, or did not."""
