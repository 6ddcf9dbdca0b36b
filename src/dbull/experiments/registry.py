"""Methods by name, and how a name with parameters, seed and true K becomes an object that can learn."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dbull.errors import SettingsError, check_known
from dbull.experiments.settings import MethodChoice

NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
PCA_DIMS = "pca_dims"  # the one parameter that belongs to the projection and not to the class behind it


@dataclass(frozen=True)
class Method:
    """Where a method's class is found and what is set when the user sets nothing."""

    path: str  # "package.module:Class", imported only when used
    summary: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    pca_dims: int | None = None  # project to so many dimensions first
    warm: bool = False  # networks see all rows of the domain that are not held out, before the stream
    told_true_k_as: str | None = None  # takes the true K, where the class does not declare it itself


_DBULL, _CURL = "dbull.methods.dbull:DBULL", "dbull:CURL"
_TOLD_K = "told the true number of classes"
METHODS: Mapping[str, Method] = {
    "dbull": Method(_DBULL, "our networks and Dirichlet process mixture, learned together"),
    "dbull-paper": Method(
        _DBULL, "the same with the paper's terms alone, on the data as they are", {"objective": "paper"}
    ),
    "dbull-warm": Method(
        _DBULL, "dbull, its networks pretrained on unlabelled rows of the domain", warm=True
    ),
    "dbull-paper-warm": Method(
        _DBULL,
        "dbull-paper, its networks pretrained on unlabelled rows of the domain",
        {"objective": "paper"},
        warm=True,
    ),
    "dbull-paper-literal": Method(
        _DBULL, "the paper's algorithm and settings as printed", {"objective": "paper-literal"}
    ),
    "dbull-paper-literal-warm": Method(
        _DBULL,
        "dbull-paper-literal, its networks pretrained on unlabelled rows of the domain",
        {"objective": "paper-literal", "freeze": False},
        warm=True,
    ),
    "dp-mixture": Method(
        "dbull.methods.dp_mixture:DPMixture",
        "our Dirichlet process mixture on PCA of the first arrival",
        pca_dims=10,
    ),
    "dec": Method("dbull:DEC", f"deep embedded clustering, {_TOLD_K}"),
    "vade": Method("dbull:VaDE", f"variational deep embedding, {_TOLD_K}"),
    "vae-dp": Method(
        "dbull:VAEDP", "a plain variational autoencoder, then our Dirichlet process mixture of its codes"
    ),
    "curl-f": Method(
        _CURL, f"CURL with a fixed number of components, {_TOLD_K}", told_true_k_as="n_clusters"
    ),
    "curl-d": Method(_CURL, "CURL that adds components where rows are explained poorly"),
    "kmeans": Method("dbull.experiments.baselines:KMeansTrueK", f"k-means, {_TOLD_K}"),
    "gmm": Method(
        "sklearn.mixture:GaussianMixture",
        f"scikit-learn's mixture on PCA, {_TOLD_K}, refitted on all rows so far",
        {"n_init": 5},
        pca_dims=10,
        told_true_k_as="n_components",
    ),
    "bgmm": Method(
        "sklearn.mixture:BayesianGaussianMixture",
        "scikit-learn's variational mixture on PCA, refitted on all rows so far",
        {"n_components": 30},
        pca_dims=10,
    ),
    "umap-dp-mixture": Method(
        "dbull.experiments.baselines:UmapDPMixture",
        "UMAP, then our Dirichlet process mixture, refitted on all rows so far (extra: umap)",
    ),
    "umap-hdbscan": Method(
        "dbull.experiments.baselines:UmapHdbscan",
        "UMAP, then HDBSCAN, refitted on all rows so far (extra: umap)",
    ),
}


@dataclass(frozen=True)
class ResolvedMethod:
    """Everything that decides what a method computes, defaults included."""

    label: str
    path: str
    parameters: Mapping[str, Any]
    pca_dims: int | None
    seed: int
    told_true_k: int | None  # what the method was told, None if it was told nothing
    watched_as: str | None = None  # the parameter that takes a listener; it decides nothing
    warm: bool = False


def resolve(
    choice: MethodChoice, seed: int, true_k: int, image_shape: tuple[int, ...] | None = None
) -> ResolvedMethod:
    """Fill in defaults, the seed and, only for a method that declares it, the true number of classes.

    The shape of images goes to a method that declares `told_shape_as`: it is no secret of the labels.

    Parameters given by the user win over all three. Unknown parameters are refused with the nearest name.
    """
    if choice.name is not None:
        check_known("method", choice.name, METHODS)
    entry = METHODS[choice.name] if choice.name is not None else Method(str(choice.path), "given by path")
    method_class = _load(entry.path)
    # What the class can be made with, and the defaults; `empty` marks those without.
    takes = inspect.signature(method_class).parameters.values()
    known = {parameter.name: parameter.default for parameter in takes if parameter.kind in NAMED}
    for key in choice.parameters:
        check_known(f"parameter of {choice.label}:", key, [*known, PCA_DIMS])
    given = dict(choice.parameters)
    pca_dims = given.pop(PCA_DIMS, entry.pca_dims)
    if pca_dims is not None and (type(pca_dims) is not int or pca_dims < 0):
        raise SettingsError(
            f"parameter {PCA_DIMS!r} must be a whole number from 0 (0: no projection), got {pca_dims!r}"
        )
    parameters = {**known, **entry.parameters}
    if "random_state" in known:
        parameters["random_state"] = seed
    told_as = entry.told_true_k_as or getattr(method_class, "told_true_k_as", None)
    if told_as in given:
        told_as = None  # the user's own number is no secret of the labels
    if told_as is not None:
        parameters[told_as] = true_k
    shape_name = getattr(method_class, "told_shape_as", None)
    if shape_name is not None and image_shape is not None and not pca_dims:  # a projected row is no image
        parameters[shape_name] = image_shape
    parameters.update(given)
    missing = [key for key, value in parameters.items() if value is inspect.Parameter.empty]
    if missing:
        raise SettingsError(
            f"{choice.label} needs a value for {missing[0]!r}: give it with --set {missing[0]}=..."
        )
    told = None if told_as is None else true_k, listener_of(entry.path)
    return ResolvedMethod(choice.label, entry.path, parameters, pca_dims or None, seed, *told, entry.warm)


def build(method: ResolvedMethod, watch: Callable[[Any], object] | None = None) -> Any:
    """Make the object: the class with its parameters, behind a projection where one is asked for.

    A class that declares `watched_as` calls `watch` while it learns, unless the user set a listener.
    """
    parameters = dict(method.parameters)
    if watch is not None and method.watched_as is not None and parameters[method.watched_as] is None:
        parameters[method.watched_as] = watch
    try:
        learner = _load(method.path)(**parameters)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{method.label} refused its parameters: {error}") from error
    if method.pca_dims is None:
        return learner
    from dbull.experiments.baselines import FirstArrivalPCA  # needs scikit-learn, which is slow to import

    return FirstArrivalPCA(learner, method.pca_dims, method.seed)


def listener_of(path: str) -> str | None:
    """Return the parameter of a class that takes a listener, None if it has none."""
    watched_as: str | None = getattr(_load(path), "watched_as", None)
    return watched_as


def _load(path: str) -> Any:
    module_name, colon, class_name = path.partition(":")
    if not (module_name and colon and class_name):
        raise SettingsError(f"method path {path!r} cannot be read: write package.module:Class")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise SettingsError(f"method path {path!r}: {module_name} cannot be imported ({error})") from error
    if not hasattr(module, class_name):
        classes = sorted(name for name, value in vars(module).items() if inspect.isclass(value))
        check_known(f"class of {module_name}:", class_name, classes)
    method_class = getattr(module, class_name)
    learns = hasattr(method_class, "fit") or hasattr(method_class, "partial_fit")
    if not learns or not hasattr(method_class, "predict"):
        raise SettingsError(f"{path} is no method: it must have predict, and fit or partial_fit")
    return method_class
