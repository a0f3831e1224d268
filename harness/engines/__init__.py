"""Engines: what serves a model, and is seen by ids and scores alone.

`interface` is what a third party writes, `registry` finds it, `subject` is it as claims see it;
`scores` and `bounds` compare its answers; `own` is an engine of Assay's own, with faults.
"""
