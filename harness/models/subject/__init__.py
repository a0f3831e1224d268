"""The model under test, as one interface: ids to rows, positions, masks and caches."""
