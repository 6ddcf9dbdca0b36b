"""Networks. They know nothing of mixtures."""
