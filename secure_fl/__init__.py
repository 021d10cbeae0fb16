"""Federated learning with stated privacy: data, federation, trainers, artifacts."""
