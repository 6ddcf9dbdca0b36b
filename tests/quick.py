"""Learning made quick, for what does not depend on how well anything is learned."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

EPOCHS = {"novel_epochs": 3, "familiar_epochs": 2, "novel_joint_epochs": 1}


@contextmanager
def quick_learning() -> Iterator[None]:
    """Recipes with hardly any training, and searches that try each birth once: half of all their time."""
    from dbull.lifelong.settings import RECIPES
    from dbull.methods import dbull_choices, dp_mixture
    from dbull.mixture.settings import SearchSettings

    with pytest.MonkeyPatch.context() as patch:
        for key, recipe in RECIPES.items():
            settings = replace(recipe.settings, training=replace(recipe.settings.training, **EPOCHS))
            patch.setitem(RECIPES, key, replace(recipe, settings=settings, epoch_range=(2, 2)))
        quick = partial(SearchSettings, second_chances=0)
        for module in (dbull_choices, dp_mixture):
            patch.setattr(module, "SearchSettings", quick)
        yield
