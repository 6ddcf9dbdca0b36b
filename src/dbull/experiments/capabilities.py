"""The paper's table of capabilities, made from what the classes declare."""

from collections.abc import Sequence
from dataclasses import fields

from dbull.experiments.registry import build, resolve
from dbull.experiments.settings import MethodChoice
from dbull.methods.base import Capabilities

PAPER_METHODS = ("dbull", "dec", "vade", "vae-dp", "curl-f", "curl-d")
HEADINGS = {
    "learns_representation": "representation learning",
    "learns_k": "learns K",
    "expands": "expansion",
    "remembers": "overcomes forgetting",
}


def capabilities_of(name: str) -> Capabilities | None:
    """Return what a registered method declares, None if it declares nothing."""
    learner = build(resolve(MethodChoice(name=name), seed=0, true_k=2))
    declared: Capabilities | None = getattr(learner, "capabilities", None)
    return declared


def capability_table(names: Sequence[str] = PAPER_METHODS) -> str:
    """Return a Markdown table of the methods that declare their capabilities; those of the paper, usually."""
    columns = [field.name for field in fields(Capabilities)]
    lines = [
        "| method | " + " | ".join(HEADINGS[column] for column in columns) + " |",
        "| --- |" + " :---: |" * len(columns),
    ]
    for name in names:
        declared = capabilities_of(name)
        if declared is not None:
            marks = ["yes" if getattr(declared, column) else "no" for column in columns]
            lines.append(f"| `{name}` | " + " | ".join(marks) + " |")
    return "\n".join(lines)
