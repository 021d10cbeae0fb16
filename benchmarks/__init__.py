"""Reproducible measurements, one file a question."""
