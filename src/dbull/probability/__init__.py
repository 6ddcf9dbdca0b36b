"""Formulas of probability distributions. Tensors in, tensors out; imports torch and our errors only."""
