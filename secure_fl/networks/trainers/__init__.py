"""Trainers of networks on the federation handle."""
