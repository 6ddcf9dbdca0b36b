"""The Dirichlet process Gaussian mixture on vectors. Knows no networks and no files."""
