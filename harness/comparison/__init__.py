"""Runs compared with each other: which verdicts changed, and which numbers really moved.

`sides` reads a run, `joining` puts several together, `changes` says what a changed verdict means,
`shifts` estimates how far each number moved, and
`judging` says which of the many shifts are real.
"""
