"""What measures and judges: subjects, numbers, verdicts, evidence, reports.  Knows no claim."""

__version__ = "0.1.0"
