"""Runs held against each other: which verdicts flipped, and which numbers really moved.

`sides` reads a run, `pairing` matches two, `shifts` estimates how far each number moved, and
`judging` says which of the many shifts are real.
"""
