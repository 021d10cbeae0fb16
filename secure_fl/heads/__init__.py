"""Heads of affine hull machines: the manifest, training, run folders, codes and queries."""
