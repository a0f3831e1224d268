"""What people see: a table and a live line in the terminal, and one page of HTML."""

from harness.report.html import check_writable, write_html
from harness.report.progress import Progress
from harness.report.terminal import print_table

__all__ = ["Progress", "check_writable", "print_table", "write_html"]
