"""The gradient-free head: kernel affine hull machines and space folding measures."""
