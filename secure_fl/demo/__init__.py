"""Demonstrations on real digits, and every party as a process of this machine."""
