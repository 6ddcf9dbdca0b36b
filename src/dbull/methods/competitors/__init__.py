"""The systems that the paper compares with, under the interface of `DBULL` and over the same autoencoder."""
