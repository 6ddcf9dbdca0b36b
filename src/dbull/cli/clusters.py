"""``dbull clusters``, ``events``, ``rename``, ``merge``, ``retire``: clusters, and changes by hand."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from dbull.cli.options import AsJson, Generation, Model, check_files
from dbull.cli.output import check_text, say, show_json, show_rows, show_table
from dbull.documents import as_text
from dbull.errors import SettingsError, check_known

if TYPE_CHECKING:
    from dbull.ledger import Ledger

COLUMNS = ("id", "name", "rows", "weight", "first_seen", "last_seen", "spread", "status")
EVENT_COLUMNS = ("generation", "time", "kind", "clusters", "rows", "evidence")
Id = Annotated[int, Argument(metavar="ID", help="As `dbull clusters` shows it.", min=0)]


def clusters(
    model: Model,
    cluster: Annotated[
        int | None, Argument(metavar="[ID]", help="One cluster and what happened to it.")
    ] = None,
    everything: Annotated[bool, Option("--all", help="Also merged ones.")] = False,
    tree: Annotated[bool, Option("--tree", help="Which would be one at a coarser resolution.")] = False,
    generation: Generation = None,
    as_json: AsJson = False,
) -> None:
    """List the clusters: rows, weight, first and last arrival (from 1), spread in latent space, status.

    Example: `dbull clusters model`, `dbull clusters model 3`, `dbull clusters model --tree`
    """
    from dbull.methods.listing import list_clusters
    from dbull.store import ModelFolder

    if tree:
        from dbull.ingest import open_model

        learner = open_model(model, generation)[0]
        _show_tree(learner.clusters_, learner.hierarchy_, as_json)
        return
    rows = list_clusters(ModelFolder(model), generation)
    if cluster is not None:
        _show_one(model, rows, cluster, generation, as_json)
        return
    shown = [row for row in rows if everything or row["status"] in ("active", "retired")]
    told = (*COLUMNS, "words") if shown and "words" in shown[0] else COLUMNS
    if not as_json:
        shown = [{**row, "words": " ".join(row.get("words", ()))} for row in shown]
    show_rows(shown, (*told, "merged_into") if everything else told, as_json)


def events(
    model: Model,
    since: Annotated[int | None, Option("--since", help="Only those after this generation.")] = None,
    kind: Annotated[
        str | None, Option(help="arrival, birth, growth, merge, rename, retirement, scale or rollback.")
    ] = None,
    everything: Annotated[bool, Option("--all", help="Also rollbacks and what they left behind.")] = False,
    as_json: AsJson = False,
) -> None:
    """List what happened, with evidence: arrivals, births, growths, merges, names, retirements, new scales.

    Example: `dbull events model --kind birth --json`
    """
    from dbull.ledger import EVENT_KINDS
    from dbull.methods.listing import told_events
    from dbull.store import ModelFolder

    if kind is not None:
        check_known("kind of event", kind, (*EVENT_KINDS, "rollback"))
    found = [
        event
        for event in told_events(ModelFolder(model), abandoned=everything or kind == "rollback")
        if (since is None or event["generation"] > since) and (kind is None or event["kind"] == kind)
    ]
    show_rows(found if as_json else _told(found), EVENT_COLUMNS, as_json)


def rename(
    model: Model, cluster: Id, name: Annotated[str, Argument(metavar="NAME", help='"" takes the name away.')]
) -> None:
    """Give a cluster a name; its id stays.

    Example: `dbull rename model 3 heels`
    """
    note = f"rename {cluster} {as_text(name)!r}"
    _mark(model, lambda ledger: ledger.rename(cluster, check_text("NAME", name) or None), note)


def merge(
    model: Model, clusters: Annotated[list[int], Argument(metavar="ID ID...", help="Two or more.")]
) -> None:
    """Make one cluster of several; the oldest id stays, and the others lead to it.

    Example: `dbull merge model 3 7`
    """
    if len(set(clusters)) < 2:
        raise SettingsError("merge needs at least two different ids")
    check_files(model, ())
    from dbull.methods.storage import Provenance, load_generation, save
    from dbull.store import ModelFolder

    folder = ModelFolder(model)
    loaded = folder.load()
    folder.check_writable()
    learner = load_generation(folder, loaded).merge_clusters(clusters)
    note = f"merge {' '.join(map(str, clusters))}"
    reading = loaded.checkpoint.settings.get("reading", {})
    say(f"generation {save(learner, model, note, Provenance(reading=reading)).generation}: {note}")


def retire(model: Model, cluster: Id) -> None:
    """Mark a cluster as no longer wanted; its rows still get its id, and `status` says so.

    Example: `dbull retire model 4`
    """
    _mark(model, lambda ledger: ledger.retire(cluster), f"retire {cluster}")


def _show_tree(rows: "list[dict[str, Any]]", joins: Sequence[Any], as_json: bool) -> None:
    """Print the hierarchy from its top, two groups below each line; or its joins as JSON."""
    if as_json:
        show_json([asdict(join) for join in joins])
        return
    told = {row["id"]: f"{row['id']} {row['name'] or ''}".rstrip() + f" ({row['rows']} rows)" for row in rows}
    made = {tuple(sorted((*join.one, *join.other))): join for join in joins}

    def tell(group: tuple[int, ...], depth: int) -> None:
        join = made.get(group)
        say("  " * depth + (f"two from resolution {join.resolution:.2g}" if join else told[group[0]]))
        for part in (join.one, join.other) if join else ():
            tell(part, depth + 1)

    living = tuple(sorted(row["id"] for row in rows if row["status"] in ("active", "retired")))
    tell(living, 0)


def _mark(path: Path, change: "Callable[[Ledger], None]", note: str) -> None:
    """Change what the ledger alone knows, as one more generation."""
    from dbull.methods.listing import change_ledger
    from dbull.store import ModelFolder

    say(f"generation {change_ledger(ModelFolder(path), change, note).generation}: {note}")


def _show_one(
    model: Path, rows: list[dict[str, Any]], cluster: int, generation: int | None, as_json: bool
) -> None:
    from dbull.methods.listing import told_events
    from dbull.store import ModelFolder

    record = next((row for row in rows if row["id"] == cluster), None)
    if record is None:
        raise SettingsError(f"no cluster has the id {cluster}; `dbull clusters {model} --all` lists them")
    found = [e for e in told_events(ModelFolder(model), generation) if cluster in e["clusters"]]
    explanation = None
    if record["status"] != "merged":
        from dbull.ingest import open_model

        explanation = open_model(model, generation)[0].explain(cluster)
    if as_json:
        told = None if explanation is None else asdict(explanation)
        show_json({**record, "events": found, "explanation": told})
        return
    for field, value in record.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        say(f"{field:<12}{'-' if shown is None or shown == '' else shown}")
    for line in () if explanation is None else explanation.lines():
        say(line)
    show_table(_told(found), EVENT_COLUMNS)


def _told(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return events with their evidence as short text."""
    told = []
    for event in found:
        evidence = {
            k: v
            for k, v in event.get("evidence", {}).items()
            if v is not None and k != "n_rows" and not isinstance(v, dict)  # rows have a column
        }
        if event["kind"] == "rollback":
            evidence = {"back to": event["restores"]} | ({"note": event["note"]} if event["note"] else {})
        short = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in evidence.items())
        told.append({**event, "evidence": short or None})
    return told
