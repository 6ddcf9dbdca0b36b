"""Formulas of probability distributions. Tensors in, tensors out; imports nothing but torch."""
