"""Unsupervised lifelong clustering."""
