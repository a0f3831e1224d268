"""Sweeps: claims over models × versions × dtypes × devices, on one machine or on many.

A sweep is a small TOML file (`plan`).  Every combination in it is a cell; a cell is one run of
pytest in a process of its own (`cell`), so that a crash ends only itself.  Cells run in order
on this machine or as tasks of Ray (`cluster`).  Each writes its own evidence file, which is merged
into the sweep's as the cell ends (`ledger`).  Nothing here imports torch.
"""
