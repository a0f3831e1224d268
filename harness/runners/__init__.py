"""Runs of claims elsewhere: other versions, other machines, many models."""
