"""A page about one run that a privacy officer can read and sign; made by `securefl report`."""

from secure_fl.report.facts import Facts, Sources, gather
from secure_fl.report.page import render, write_report

__all__ = ["Facts", "Sources", "gather", "render", "write_report"]
