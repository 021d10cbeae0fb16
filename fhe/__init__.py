"""Encrypted minimum, equality and the global rule on integer codes, in three roles."""
