"""The example on STL-10: its network against a plain reading of the weights, and what may be wrong with them;
and the way from images in their own format to features that load.
"""

import hashlib
import importlib.util
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from dbull import data
from dbull.data.image_sets import STL10_FILES
from dbull.data.registry import RECIPES
from dbull.errors import DataError

SCRIPT = Path(__file__).parents[2] / "examples" / "stl10_features.py"
spec = importlib.util.spec_from_file_location("stl10_features", SCRIPT)
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)

N_PARAMETERS = 23_508_032  # 25,557,032 of the whole ResNet-50 without its classifier of 2,049,000


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A state dict with random weights and a classifier, as in the weight files in common use."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        state = example.ResNet50Features().state_dict()
        for name, value in state.items():
            if name.endswith("running_mean"):
                value.normal_(0, 0.1)
            elif name.endswith("running_var"):
                value.uniform_(0.5, 1.5)
        state["fc.weight"], state["fc.bias"] = torch.zeros(1000, 2048), torch.zeros(1000)
    path = tmp_path_factory.mktemp("weights") / "resnet50.pth"
    torch.save(state, path)
    return path


def reference_features(state: dict[str, torch.Tensor], images: torch.Tensor) -> torch.Tensor:
    """Compute the features from the names in the file alone, after Table 1 of He et al. (2016)."""

    def conv_norm(x, conv, norm, stride, padding):
        x = functional.conv2d(x, state[f"{conv}.weight"], stride=stride, padding=padding)
        parts = [state[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
        return functional.batch_norm(x, *parts, training=False, eps=1e-5)

    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (example.IMAGENET_MEAN, example.IMAGENET_STD))
    x = functional.relu(conv_norm((images - mean) / std, "conv1", "bn1", 2, 3))
    x = functional.max_pool2d(x, 3, 2, 1)
    for stage, n_blocks in enumerate((3, 4, 6, 3), start=1):
        for block in range(n_blocks):
            name = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            y = functional.relu(conv_norm(x, f"{name}.conv1", f"{name}.bn1", 1, 0))
            y = functional.relu(conv_norm(y, f"{name}.conv2", f"{name}.bn2", stride, 1))
            y = conv_norm(y, f"{name}.conv3", f"{name}.bn3", 1, 0)
            if block == 0:
                x = conv_norm(x, f"{name}.downsample.0", f"{name}.downsample.1", stride, 0)
            x = functional.relu(x + y)
    assert x.shape[1:] == (2048, 3, 3)
    return x.mean(dim=(2, 3))


def test_features_of_96_by_96_images_are_the_mean_of_the_last_map(weights):
    images = torch.rand(3, 3, 96, 96, generator=torch.Generator().manual_seed(1))
    network = example.load_resnet50(weights)
    features = torch.cat(list(example.extract_features(network, images, batch_size=2)))
    assert features.shape == (3, 2048)
    expected = reference_features(torch.load(weights, weights_only=True), images)
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))
    assert float(expected.std()) > 0


def test_size_and_names_are_those_of_the_usual_weight_files():
    network = example.ResNet50Features()
    assert sum(p.numel() for p in network.parameters()) == N_PARAMETERS
    names = set(network.state_dict())
    assert {"conv1.weight", "layer1.0.downsample.1.running_var", "layer4.2.bn3.num_batches_tracked"} <= names
    assert len(names) == 318  # 320 entries of the usual file without fc.weight and fc.bias


def test_network_is_fixed_after_loading(weights):
    network = example.load_resnet50(weights)
    assert not network.training
    assert not any(p.requires_grad for p in network.parameters())


def test_code_in_a_weight_file_is_refused(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (exec, ("raise SystemExit('unpickled')",))

    path = tmp_path / "bomb.pth"
    torch.save({"conv1.weight": Bomb()}, path)
    with pytest.raises(DataError, match=r"bomb\.pth: not a file of tensors alone"):
        example.load_resnet50(path)
    path.write_bytes(pickle.dumps(Bomb(), protocol=2))
    with pytest.raises(DataError, match="not a file of tensors alone"):
        example.load_resnet50(path)


def test_other_weights_are_refused_by_the_first_difference(tmp_path, weights):
    path = tmp_path / "other.pth"
    right = torch.load(weights, weights_only=True)
    wide = right | {"layer2.0.conv2.weight": torch.zeros(256, 128, 3, 3)}
    without = {name: value for name, value in right.items() if name != "layer4.2.bn3.bias"}
    for state, message in [
        (without, r"'layer4\.2\.bn3\.bias' is missing"),
        (wide, r"'layer2\.0\.conv2\.weight' has shape \(256, 128, 3, 3\), expected \(128, 128, 3, 3\)"),
        (right | {"layer3.6.conv1.weight": torch.zeros(1)}, r"it has no 'layer3\.6\.conv1\.weight'"),
        (torch.zeros(3), "expected a state dict"),
    ]:
        torch.save(state, path)
        with pytest.raises(DataError, match=message):
            example.load_resnet50(path)
    with pytest.raises(DataError, match="no such file"):
        example.load_resnet50(tmp_path / "none.pth")


def test_old_files_without_batch_counts_are_taken(tmp_path, weights):
    path = tmp_path / "old.pth"
    state = torch.load(weights, weights_only=True)
    torch.save({name: value for name, value in state.items() if "num_batches" not in name}, path)
    torch.testing.assert_close(example.load_resnet50(path).conv1.weight.data, state["conv1.weight"])


def test_images_of_the_wrong_shape_are_refused():
    with pytest.raises(DataError, match=r"images must have shape \(N, 3, H, W\), got \(2, 96, 96, 3\)"):
        next(example.extract_features(example.ResNet50Features(), torch.zeros(2, 96, 96, 3)))


@pytest.mark.slow
def test_images_become_features(tmp_path, monkeypatch):
    folder = tmp_path / "stl10"
    folder.mkdir()
    random = np.random.default_rng(0)
    (folder / "train_X.bin").write_bytes(random.integers(256, size=2 * 27_648).astype(np.uint8).tobytes())
    (folder / "test_X.bin").write_bytes(random.integers(256, size=27_648).astype(np.uint8).tobytes())
    (folder / "train_y.bin").write_bytes(bytes([3, 10]))
    (folder / "test_y.bin").write_bytes(bytes([1]))
    files = tuple(
        replace(file, stored=(hashlib.sha256((folder / file.name).read_bytes()).hexdigest(),))
        for file in STL10_FILES
    )
    monkeypatch.setitem(RECIPES, "stl10", replace(RECIPES["stl10"], choices=(files,)))
    images = data.load("stl10", tmp_path)
    assert images.y_true.tolist() == [2, 9, 0]

    weights = tmp_path / "resnet50.pth"
    torch.save(example.ResNet50Features().state_dict(), weights)
    # The script in a process of its own, where the three images pass for the real ones.
    code = (
        "import sys, runpy; from dataclasses import replace; from dbull.data import registry, files\n"
        "known = registry.RECIPES['stl10']\n"
        "mine = tuple(replace(f, stored=(), content=()) for f in known.choices[0])\n"
        "registry.RECIPES['stl10'] = replace(known, choices=(mine,))\n"
        f"sys.argv = ['x', {str(weights)!r}, '--data', {str(tmp_path)!r}, '--batch-size', '2']\n"
        f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "3 of 3 images" in done.stdout
    features = data.load("stl10-features", tmp_path)
    assert (features.x.shape, features.kind, features.y_true.tolist()) == ((3, 2048), "features", [2, 9, 0])
    tensors = torch.from_numpy(images.x).view(-1, 3, 96, 96)
    expected = torch.cat(list(example.extract_features(example.load_resnet50(weights), tensors, 2))).numpy()
    np.testing.assert_allclose(features.x, expected, rtol=1e-4, atol=1e-5)
