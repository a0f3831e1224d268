"""Checkpoints, folders, adapters and files: from a name to a model that is ready to run."""
