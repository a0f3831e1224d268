"""What is kept: verdicts, evidence, expectations, reproducers of defects."""
