"""What the paper printed, number by number.

T. Zhao, Z. Wang, A. Masoomi, J. Dy: *Deep Bayesian Unsupervised Lifelong Learning*, Neural Networks. Methods
go by the names that `dbull bench` has for them; the paper's DBULL is our `dbull-paper`.
"""

from collections.abc import Mapping

SOURCE = "Zhao, Wang, Masoomi, Dy: Deep Bayesian Unsupervised Lifelong Learning, Neural Networks"

# Table 2: samples, dimensions, classes.
DATA: Mapping[str, tuple[int, int, int]] = {
    "MNIST": (70_000, 784, 10),
    "Reuters10k": (10_000, 2_000, 4),
    "STL-10": (13_000, 2_048, 10),
}

# Table 4: NMI, ARI, HS, VM in percent, mean over five replications, "standard error" in brackets.
QUALITY: Mapping[str, Mapping[str, tuple[str, str, str, str]]] = {
    "MNIST": {
        "dec": ("84.67 (2.25)", "83.67 (4.53)", "84.67 (2.25)", "84.67 (2.25)"),
        "vade": ("80.35 (4.68)", "74.06 (9.11)", "79.86 (4.93)", "80.36 (4.69)"),
        "vae-dp": ("81.70 (0.825)", "70.49 (1.654)", "91.27 (0.215)", "81.19 (0.904)"),
        "curl-f": ("69.76 (2.51)", "56.47 (4.11)", "68.60 (2.56)", "69.75 (2.51)"),
        "curl-d": ("63.51 (1.32)", "36.84 (1.98)", "76.35 (1.53)", "62.45 (1.32)"),
        "dbull-paper": ("85.72 (1.02)", "83.53 (2.35)", "89.34 (0.25)", "85.65 (0.51)"),
    },
    "Reuters10k": {
        "dec": ("46.56 (5.36)", "46.86 (7.98)", "48.44 (5.44)", "46.52 (5.36)"),
        "vade": ("41.64 (4.73)", "38.49 (5.44)", "43.64 (4.88)", "41.60 (4.73)"),
        "vae-dp": ("41.62 (2.99)", "37.93 (4.57)", "46.64 (3.85)", "41.34 (2.94)"),
        "curl-f": ("51.92 (3.22)", "47.72 (4.00)", "54.38 (3.49)", "51.86 (3.21)"),
        "curl-d": ("46.31 (1.83)", "22.00 (3.60)", "66.90 (2.09)", "43.34 (2.00)"),
        "dbull-paper": ("45.32 (1.79)", "42.66 (5.73)", "48.88 (1.86)", "45.40 (2.04)"),
    },
    "STL-10": {
        "dec": ("71.92 (2.66)", "58.73 (5.09)", "68.47 (3.48)", "71.83 (2.72)"),
        "vade": ("68.35 (3.85)", "59.42 (6.84)", "67.24 (4.23)", "68.37 (3.92)"),
        "vae-dp": ("43.18 (1.41)", "26.58 (1.32)", "42.28 (1.03)", "43.16 (1.39)"),
        "curl-f": ("66.98 (3.38)", "51.24 (4.06)", "65.46 (3.27)", "66.96 (3.37)"),
        "curl-d": ("65.71 (1.33)", "37.96 (4.69)", "80.86 (2.94)", "64.31 (1.24)"),
        "dbull-paper": ("75.26 (0.53)", "70.72 (0.81)", "77.61 (1.29)", "75.22 (0.52)"),
    },
}

# Table 5: clusters found in five replications; CURL-D had upper bounds on Reuters10k and STL-10.
CLUSTERS: Mapping[str, Mapping[str, str]] = {
    "MNIST": {"dbull-paper": "11-15", "curl-d": "34"},
    "Reuters10k": {"dbull-paper": "5-10", "curl-d": "40"},
    "STL-10": {"dbull-paper": "12-15", "curl-d": "50"},
}
CURL_BOUNDS = {"batch-reuters10k": 40, "batch-stl10-features": 50}

# Table 6: accuracy on MNIST in percent: the best, and the mean where it is printed. Those of DEC, VaDE and
# CURL-F are quoted there from the papers of their authors, whose protocols differ.
ACCURACY: Mapping[str, tuple[str, str]] = {
    "dec": ("84.30", ""),
    "vade": ("94.46", ""),
    "curl-f": ("84", "79.38 (4.26)"),
    "dbull-paper": ("92.27", ""),
}

# Section 6.1: clusters after tasks 1 to 5 of Split MNIST; CURL-D's only after the first and the last.
STREAM_CLUSTERS = (4, 6, 8, 10, 12)
STREAM_CLUSTERS_CURL = {0: (14, 16), 4: (23, 25)}
