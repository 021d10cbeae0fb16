"""Ledgers of runs: opening and combining them, and what a run promises."""
