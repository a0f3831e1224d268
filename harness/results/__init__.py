"""The records that Assay keeps: verdicts, evidence, expectations, scripts of defects."""
