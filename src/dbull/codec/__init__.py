"""A learner as named tensors and plain values, and back, to the bit; no class is named in either."""
