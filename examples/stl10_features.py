"""Make the STL-10 features of the paper with your own ResNet-50 weights.

    python examples/stl10_features.py resnet50.pth

reads STL-10 (get it with `dbull data get stl10`), writes `stl10/stl10_resnet50.npz` into the data folder,
and from then on `dbull.data.load("stl10-features")` works.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from dbull.data import load
from dbull.data.files import write_root
from dbull.data.stl10 import FEATURES_FILE
from dbull.nets.resnet_features import extract_features, load_resnet50


def main() -> None:
    parser = argparse.ArgumentParser(description="Make STL-10 features with a ResNet-50.")
    parser.add_argument("weights", type=Path, help="state dict of a ResNet-50 trained on ImageNet")
    parser.add_argument(
        "--data", type=Path, default=None, help="data folder; default DBULL_DATA, then the user's cache"
    )
    parser.add_argument("--out", type=Path, default=None, help="file to write; default in the data folder")
    parser.add_argument("--batch-size", type=int, default=64)
    args = parser.parse_args()
    out = args.out or write_root(args.data) / "stl10" / FEATURES_FILE.name
    network = load_resnet50(args.weights)
    dataset = load("stl10", args.data)
    images = torch.from_numpy(dataset.x).view(-1, *dataset.sample_shape)
    features = []
    for batch in extract_features(network, images, args.batch_size):
        features.append(batch.numpy())
        print(f"\r{sum(map(len, features)):,} of {len(dataset):,} images", end="", flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(out, features=np.concatenate(features), label=dataset.y_true)
    print(f"\nwrote {out}")


if __name__ == "__main__":
    main()
