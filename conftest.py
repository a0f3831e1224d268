"""The plug-ins of Assay: options and verdicts, and the models under test."""

pytest_plugins = ["harness.plugin", "fixtures.subjects"]
