"""From STL-10 in its own format to features that load: the example script on three images."""

import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dbull import data
from dbull.data import stl10
from dbull.data.recipes import RECIPES

SCRIPT = Path(__file__).parents[2] / "examples" / "stl10_features.py"


@pytest.mark.slow
def test_images_become_features(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    from dbull.nets.resnet_features import ResNet50Features, extract_features, load_resnet50

    folder = tmp_path / "stl10"
    folder.mkdir()
    random = np.random.default_rng(0)
    (folder / "train_X.bin").write_bytes(random.integers(256, size=2 * 27_648).astype(np.uint8).tobytes())
    (folder / "test_X.bin").write_bytes(random.integers(256, size=27_648).astype(np.uint8).tobytes())
    (folder / "train_y.bin").write_bytes(bytes([3, 10]))
    (folder / "test_y.bin").write_bytes(bytes([1]))
    files = tuple(
        replace(file, stored=(hashlib.sha256((folder / file.name).read_bytes()).hexdigest(),))
        for file in stl10.BINARY_FILES
    )
    monkeypatch.setitem(RECIPES, "stl10", replace(RECIPES["stl10"], choices=(files,)))
    images = data.load("stl10", tmp_path)
    assert images.y_true.tolist() == [2, 9, 0]

    weights = tmp_path / "resnet50.pth"
    torch.save(ResNet50Features().state_dict(), weights)
    # The script in a process of its own, where the three images pass for the real ones.
    code = (
        "import sys, runpy; from dataclasses import replace; from dbull.data import recipes, files\n"
        "known = recipes.RECIPES['stl10']\n"
        "mine = tuple(replace(f, stored=(), content=()) for f in known.choices[0])\n"
        "recipes.RECIPES['stl10'] = replace(known, choices=(mine,))\n"
        f"sys.argv = ['x', {str(weights)!r}, '--data', {str(tmp_path)!r}, '--batch-size', '2']\n"
        f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "3 of 3 images" in done.stdout
    features = data.load("stl10-features", tmp_path)
    assert (features.x.shape, features.kind, features.y_true.tolist()) == ((3, 2048), "features", [2, 9, 0])
    tensors = torch.from_numpy(images.x).view(-1, 3, 96, 96)
    expected = torch.cat(list(extract_features(load_resnet50(weights), tensors, 2))).numpy()
    np.testing.assert_allclose(features.x, expected, rtol=1e-4, atol=1e-5)
