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
    from dbull.methods import dp_mixture
    from dbull.mixture.settings import SearchSettings

    with pytest.MonkeyPatch.context() as patch:
        for key, recipe in RECIPES.items():
            learned = recipe.settings
            search = replace(learned.mixture.search, second_chances=0)
            settings = replace(
                learned,
                training=replace(learned.training, **EPOCHS),
                mixture=replace(learned.mixture, search=search),
            )
            quick = replace(recipe, settings=settings, epoch_range=(2, 2))
            patch.setitem(RECIPES, key, quick)
        patch.setattr(dp_mixture, "SearchSettings", partial(SearchSettings, second_chances=0))
        yield
