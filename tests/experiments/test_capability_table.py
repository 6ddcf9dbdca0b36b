"""The paper's table of capabilities: what classes declare, as the documentation prints it."""

from pathlib import Path

from dbull.experiments.registry import METHODS
from dbull.experiments.tables import capabilities_of, capability_table

DOCS = Path(__file__).parents[2] / "docs" / "competitors.md"
# Table 3 of the paper.
PAPER = {
    "dbull": (True, True, True, True),
    "dec": (True, False, False, False),
    "vade": (True, False, False, False),
    "vae-dp": (True, True, True, False),
    "curl-f": (True, False, False, True),
    "curl-d": (True, True, True, True),
}


def test_declarations_are_those_of_the_paper():
    for name, claims in PAPER.items():
        declared = capabilities_of(name)
        assert declared is not None
        assert (
            declared.learns_representation,
            declared.learns_k,
            declared.expands,
            declared.remembers,
        ) == claims, name


def test_table_in_the_documentation_is_the_one_that_is_made():
    assert capability_table(list(PAPER)) in DOCS.read_text()


def test_methods_without_a_declaration_are_left_out():
    table = capability_table(["kmeans", "dec"])
    assert "kmeans" not in table
    assert "| `dec` | yes | no | no | no |" in table


def test_all_but_baselines_declare_themselves_and_variants_as_their_method():
    declared = {name: capabilities_of(name) for name in METHODS}
    assert {name for name, claims in declared.items() if claims is None} == {
        *("dp-mixture", "kmeans", "gmm", "bgmm", "umap-hdbscan", "umap-dp-mixture")
    }
    for name in METHODS:
        if name.startswith("dbull"):
            assert declared[name] == declared["dbull"], name
