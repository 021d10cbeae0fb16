"""Differentially private release of matrices, with a statement and a ledger."""
