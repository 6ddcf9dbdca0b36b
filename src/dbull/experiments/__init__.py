"""Experiments: run methods on scenarios, keep every number with what made it, make tables and figures."""
