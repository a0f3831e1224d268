"""What Assay claims, as tests: a file for each topic, and known exceptions in `expectations/`."""
