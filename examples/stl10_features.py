"""Make the STL-10 features of the paper with your own ResNet-50 weights.

    python examples/stl10_features.py resnet50.pth

reads STL-10 (get it with `dbull data get stl10`), writes `stl10/stl10_resnet50.npz` into the data folder,
and from then on `dbull.data.load("stl10-features")` works.

The paper describes its STL-10 by 2,048 numbers an image: the last feature map of a ResNet-50 trained on
ImageNet, averaged over windows of 3 x 3. An image of 96 x 96 has a map of 3 x 3, hence one number a channel.
The network is that of He et al. (2016) with the stride in the middle convolution of a block, whose parameters
are named as in the weight files in common use (`layer1.0.conv1.weight`, ...).
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from dbull.data import load
from dbull.data.files import files_of, roots
from dbull.errors import DataError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
_POOL = 3
_EXPANSION = 4  # a block's output has four times the channels of its inner convolutions


class _Block(nn.Module):
    """Bottleneck: 1 x 1 down, 3 x 3, 1 x 1 up, added to the input."""

    def __init__(self, n_in: int, n_inner: int, stride: int) -> None:
        super().__init__()
        n_out = n_inner * _EXPANSION
        self.conv1 = nn.Conv2d(n_in, n_inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_inner)
        self.conv2 = nn.Conv2d(n_inner, n_inner, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_inner)
        self.conv3 = nn.Conv2d(n_inner, n_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(n_out)
        self.downsample: nn.Module | None = None
        if stride != 1 or n_in != n_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet50Features(nn.Module):
    """A ResNet-50 up to its last feature map, with 3 x 3 average pooling.

    Takes images (N, 3, H, W) in [0, 1], H and W at least 65, and returns (N, 2048 h w), where
    h x w is what is left of the map after pooling: 1 x 1 for images of 96 x 96.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _stage(64, 64, n_blocks=3, stride=1)
        self.layer2 = _stage(256, 128, n_blocks=4, stride=2)
        self.layer3 = _stage(512, 256, n_blocks=6, stride=2)
        self.layer4 = _stage(1024, 512, n_blocks=3, stride=2)
        self._mean: Tensor
        self._std: Tensor
        self.register_buffer("_mean", torch.tensor(IMAGENET_MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("_std", torch.tensor(IMAGENET_STD).view(3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the pooled features of a batch of images."""
        x = (images - self._mean) / self._std
        x = torch.relu(self.bn1(self.conv1(x)))
        x = nn.functional.max_pool2d(x, 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))  # (N, 2048, H / 32, W / 32)
        return nn.functional.avg_pool2d(x, _POOL).flatten(start_dim=1)


def _stage(n_in: int, n_inner: int, n_blocks: int, stride: int) -> nn.Sequential:
    rest = [_Block(n_inner * _EXPANSION, n_inner, 1) for _ in range(n_blocks - 1)]
    return nn.Sequential(_Block(n_in, n_inner, stride), *rest)


def load_resnet50(weights: Path | str) -> ResNet50Features:
    """Return the network with weights from a file of tensors (`torch.save` of a state dict), ready to use.

    The classifier `fc` in the file is left out. Only tensors are read: a file that holds code is refused.
    """
    path = Path(weights)
    if not path.is_file():
        raise DataError(f"{path}: no such file; give the state dict of a ResNet-50 trained on ImageNet")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever its unpickler met
        raise DataError(f"{path}: not a file of tensors alone ({str(error).splitlines()[0]})") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise DataError(f"{path}: expected a state dict, that is names with tensors")
    network = ResNet50Features()
    body = {name: value for name, value in state.items() if not name.startswith("fc.")}
    _check_names(body, network.state_dict(), path)
    network.load_state_dict(body)
    return network.eval().requires_grad_(False)


def _check_names(found: dict[str, Tensor], expected: dict[str, Tensor], path: Path) -> None:
    """Refuse other weights by the first name that is missing, too much, or of another shape."""
    # Older files have no count of batches; it plays no part after training.
    needed = [name for name in expected if not name.endswith("num_batches_tracked")]
    for name in needed:
        if name not in found:
            raise DataError(f"{path}: these are not the weights of a ResNet-50: '{name}' is missing")
        if found[name].shape != expected[name].shape:
            raise DataError(
                f"{path}: these are not the weights of a ResNet-50: '{name}' has shape "
                f"{tuple(found[name].shape)}, expected {tuple(expected[name].shape)}"
            )
    extra = [name for name in found if name not in expected]
    if extra:
        raise DataError(f"{path}: these are not the weights of a ResNet-50: it has no '{extra[0]}'")


def extract_features(network: ResNet50Features, images: Tensor, batch_size: int = 64) -> Iterator[Tensor]:
    """Yield the features of (N, 3, H, W) images in [0, 1], a batch at a time."""
    if batch_size < 1:
        raise DataError(f"batch_size must be at least 1, got {batch_size}")
    if images.ndim != 4 or images.shape[1] != 3:
        raise DataError(f"images must have shape (N, 3, H, W), got {tuple(images.shape)}")
    with torch.inference_mode():
        for start in range(0, len(images), batch_size):
            yield network(images[start : start + batch_size])


def main() -> None:
    parser = argparse.ArgumentParser(description="Make STL-10 features with a ResNet-50.")
    parser.add_argument("weights", type=Path, help="state dict of a ResNet-50 trained on ImageNet")
    parser.add_argument(
        "--data", type=Path, default=None, help="data folder; default DBULL_DATA, then the user's cache"
    )
    parser.add_argument("--out", type=Path, default=None, help="file to write; default in the data folder")
    parser.add_argument("--batch-size", type=int, default=64)
    args = parser.parse_args()
    out = args.out or roots(args.data)[0] / "stl10" / files_of("stl10-features")[0].name
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
