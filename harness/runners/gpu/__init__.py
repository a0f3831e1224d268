"""The first hour with a GPU: stages in order of worth, each with its own time (`assay gpu`)."""
