"""Kronecker-factored curvature of linear and convolutional layers. Imports torch."""

from secure_fl.kfac.factors import Curvature, Preconditioner, Recorder

__all__ = ["Curvature", "Preconditioner", "Recorder"]
