"""Parties who cheat: real code that speaks the real protocol, and what it gets."""
