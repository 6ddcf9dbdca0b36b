"""The known data sets: which files each needs, how they are read, where they come from, on what terms."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dbull.data import cifar10, kddcup99, mnist, newsgroups, reuters, reuters21578, stl10, synthetic, usps
from dbull.data.dataset import Samples
from dbull.data.digits import read_digits
from dbull.data.files import DataFile


@dataclass(frozen=True)
class Recipe:
    """How to come by one data set.

    `choices` are sets of files that are each enough, fastest to read first; all of them give the
    same bytes. The first complete one is read; the first with addresses is what `fetch` downloads.
    """

    summary: str
    kind: str
    subfolder: str
    choices: tuple[tuple[DataFile, ...], ...]
    read: Callable[[Mapping[str, Path]], Samples]
    source: str
    licence: str

    @property
    def download(self) -> tuple[DataFile, ...]:
        """The files to download, or to ask for where none can be downloaded."""
        return next(
            (files for files in self.choices if files and all(f.urls for f in files)), self.choices[0]
        )

    @property
    def can_get(self) -> bool:
        """Whether the files can be downloaded."""
        return bool(self.download) and all(file.urls for file in self.download)


_SYNTHETIC = "drawn by dbull.data.synthetic"
_REUTERS = "Reuters Corpus Volume 1 (Lewis et al., JMLR 2004), by way of the R package mldr.datasets"
_REUTERS_LICENCE = "copyright Reuters; for research use"
_KDD = "UCI KDD archive, KDD Cup 1999"
_CIFAR = "https://www.cs.toronto.edu/~kriz/cifar.html"
_CIFAR_LICENCE = "none stated; free for research"
_STL = "https://cs.stanford.edu/~acoates/stl10/"

RECIPES: dict[str, Recipe] = {
    "digits": Recipe(
        "1,797 handwritten digits of 8 x 8",
        "images",
        "",
        ((),),
        read_digits,
        "scikit-learn (UCI Optical Recognition of Handwritten Digits)",
        "CC BY 4.0",
    ),
    "mnist": Recipe(
        "70,000 handwritten digits of 28 x 28",
        "images",
        "mnist",
        (mnist.MNIST_FILES,),
        partial(mnist.read_idx_images, label_names=mnist.MNIST_LABELS),
        "MNIST (LeCun, Cortes, Burges)",
        "none stated; commonly listed as CC BY-SA 3.0",
    ),
    "fashion-mnist": Recipe(
        "70,000 images of clothing of 28 x 28",
        "images",
        "fashion-mnist",
        (mnist.FASHION_FILES,),
        partial(mnist.read_idx_images, label_names=mnist.FASHION_LABELS),
        "https://github.com/zalandoresearch/fashion-mnist",
        "MIT",
    ),
    "usps": Recipe(
        "9,298 postal digits of 16 x 16",
        "images",
        "usps",
        (usps.FILES,),
        usps.read_usps,
        "https://hastie.su.domains/ElemStatLearn/data.html",
        "none stated; given out with the book for teaching and research",
    ),
    "reuters10k": Recipe(
        "10,000 newswire documents of 4 topics, tf-idf of 2,000 words",
        "text",
        "reuters-rcv1",
        ((reuters.READY_FILE,), (reuters.COUNTS_FILE,)),
        reuters.read_reuters10k,
        _REUTERS,
        _REUTERS_LICENCE,
    ),
    "reuters-rcv1": Recipe(
        "23,158 newswire documents of 4 topics, tf-idf of 2,000 words; Reuters10k is drawn from them",
        "text",
        "reuters-rcv1",
        ((reuters.COUNTS_FILE,),),
        reuters.read_pool,
        _REUTERS,
        _REUTERS_LICENCE,
    ),
    "20newsgroups": Recipe(
        "18,846 Usenet posts of 20 groups, tf-idf of 2,000 words",
        "text",
        "20newsgroups",
        ((newsgroups.ARCHIVE,),),
        newsgroups.read_newsgroups,
        "http://qwone.com/~jason/20Newsgroups/",
        "none stated (public posts of 1993, collected by K. Lang)",
    ),
    "reuters-21578": Recipe(
        "9,494 newswire stories of 1987 with one topic, tf-idf of 2,000 words; not Reuters10k",
        "text",
        "reuters-21578",
        ((reuters21578.ARCHIVE,),),
        reuters21578.read_reuters21578,
        "Reuters-21578, Distribution 1.0 (D. D. Lewis)",
        "copyright Reuters; for research use only",
    ),
    "cifar10": Recipe(
        "60,000 colour images of 32 x 32",
        "images",
        "cifar10",
        ((cifar10.ARCHIVE,),),
        cifar10.read_images,
        _CIFAR,
        _CIFAR_LICENCE,
    ),
    "cifar10-test": Recipe(
        "the 10,000 test images of CIFAR-10",
        "images",
        "cifar10",
        (*((file,) for file in cifar10.TEST_FILES), (cifar10.ARCHIVE,)),
        cifar10.read_test,
        _CIFAR,
        _CIFAR_LICENCE,
    ),
    "cifar10-features": Recipe(
        "1,280 EfficientNet-Lite0 features of the CIFAR-10 test images",
        "features",
        "cifar10",
        ((cifar10.FEATURES_FILE,),),
        cifar10.read_features,
        f"{_CIFAR}, features by EfficientNet-Lite0 trained on ImageNet",
        f"images: {_CIFAR_LICENCE}; network: Apache-2.0",
    ),
    "stl10": Recipe(
        "13,000 colour images of 96 x 96",
        "images",
        "stl10",
        (stl10.BINARY_FILES, (stl10.ARCHIVE,)),
        stl10.read_images,
        _STL,
        "none stated; images of ImageNet, for research",
    ),
    "stl10-features": Recipe(
        "2,048 ResNet-50 features of STL-10, made by the user with examples/stl10_features.py",
        "features",
        "stl10",
        ((stl10.FEATURES_FILE,),),
        stl10.read_features,
        f"{_STL}, features by a ResNet-50 of the user's",
        "images: none stated, for research; network: that of the weights",
    ),
    "kddcup99": Recipe(
        "494,021 network connections in order, 41 attributes in 123 columns",
        "records",
        "kddcup99",
        ((kddcup99.TRAIN_FILE,),),
        kddcup99.read_connections,
        _KDD,
        "none stated; public",
    ),
    "kddcup99-corrected": Recipe(
        "311,029 later network connections, with 17 new kinds of attack",
        "records",
        "kddcup99",
        ((kddcup99.CORRECTED_FILE,),),
        kddcup99.read_connections,
        _KDD,
        "none stated; public",
    ),
    "gaussian-mixture": Recipe(
        "10,000 points of 5 Gaussians in 10 dimensions",
        "features",
        "",
        ((),),
        lambda _: synthetic.gaussian_mixture(seed=0),
        _SYNTHETIC,
        "MIT",
    ),
    "skewed-mixture": Recipe(
        "10,000 points of 5 skew-normal clusters in 10 dimensions",
        "features",
        "",
        ((),),
        lambda _: synthetic.skewed_mixture(seed=0),
        _SYNTHETIC,
        "MIT",
    ),
    "drifting-mixture": Recipe(
        "10,000 points of 5 moving Gaussians in 10 dimensions, in time order",
        "features",
        "",
        ((),),
        lambda _: synthetic.drifting_mixture(seed=0),
        _SYNTHETIC,
        "MIT",
    ),
}
