"""Six of Assay's claims, and faults that they notice, written outside of Assay."""
