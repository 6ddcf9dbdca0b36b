"""Clusters and events of a stored `DBULL` from documents and statistics alone, without importing torch.

A command that lists, or that changes no more than the ledger, answers at once this way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from dbull.documents import (
    Reader,
    anything,
    check_fields,
    fail,
    list_of,
    mapping,
    number,
    object_of,
    or_none,
    text,
    truth,
    whole,
)
from dbull.errors import ModelFileError
from dbull.ledger import Event, Ledger, spread_of
from dbull.store import Checkpoint, Manifest, ModelFolder
from dbull.store.comparison import changes, names_beyond
from dbull.store.contents import read_document
from dbull.store.tensors import read_arrays
from dbull.writing import now

SETTINGS: dict[str, Reader] = {  # what the manifest of a learner has
    "method": text,
    "parameters": anything,
    "reading": mapping,
    "elbo": or_none(number),
}
N_WORDS = 8  # by which a cluster of texts is told
N_KEYS = 5  # of exemplars of a cluster that are kept in any case
VOCABULARY = "vocabulary"  # the document of words beside what is clustered
EXEMPLARS = "exemplars"  # the document of them
EXEMPLAR: dict[str, Reader] = {"cluster": whole, "key": text, "depth": number, "row": truth}
_LEARNER, _MIXTURE = "learner.json", "mixture.safetensors"


def check_method(folder: ModelFolder, manifest: Manifest) -> None:
    """Refuse the model of another method than DBULL."""
    method = manifest.settings.get("method", "dbull")
    if method != "dbull":
        place = folder.folder(manifest.generation)
        raise ModelFileError(
            f"{place}: is a model of {method!r:.40} and not of DBULL; use dbull.load in Python"
        )


def read_ledger(folder: ModelFolder, generation: int | None = None) -> tuple[Ledger, Manifest]:
    """Return the ledger of a generation, the newest if none is named, without its events; and its manifest.

    Every file of the generation is verified.
    """
    manifest = folder.verify(generation)
    check_method(folder, manifest)
    place = folder.folder(manifest.generation)
    check_fields(manifest.settings, f"{place / 'manifest.json'}.settings", SETTINGS)
    document = read_document(folder.path, manifest, "clusters")
    ledger = Ledger.from_json(document, where=str(place / "clusters.json"))
    ledger.reserve(manifest.ids_given)
    return ledger, manifest


def list_clusters(folder: ModelFolder, generation: int | None = None) -> list[dict[str, Any]]:
    """Return what `clusters_` of the loaded model would."""
    ledger, manifest = read_ledger(folder, generation)
    where = str(folder.folder(manifest.generation) / _LEARNER)
    learner = mapping(read_document(folder.path, manifest, "learner"), where)
    components = mapping(learner.get("components"), f"{where}.components")
    owners = list_of(whole)(components.get("clusters"), f"{where}.components.clusters")
    if set(owners) != set(ledger.living_ids):
        fail(where, "clusters of components are not those of the ledger")
    if _MIXTURE not in manifest.files:
        fail(where, f"{_MIXTURE} is missing")
    arrays = read_arrays(manifest.path(folder.path, _MIXTURE), manifest.files[_MIXTURE].bytes)
    parts = [arrays.get(name) for name in ("counts", "sum_z", "sum_zz")]
    if any(part is None or len(part) != len(owners) for part in parts):
        fail(where, "components and their statistics do not agree")
    spreads = {}
    for cluster in ledger.living_ids:
        mine = [place for place, owner in enumerate(owners) if owner == cluster]
        spreads[cluster] = spread_of(*(part[mine] for part in parts if part is not None))
    keys, words = _exemplars(folder, manifest, ledger), _words(folder, manifest, ledger)
    return [
        {
            **row,
            **({} if words is None else {"words": words.get(row["id"], [])}),
            "spread": spreads.get(row["id"]),
            "exemplars": keys.get(row["id"], []),
        }
        for row in ledger.table()
    ]


def _words(folder: ModelFolder, manifest: Manifest, ledger: Ledger) -> dict[int, list[str]] | None:
    """Return the words that set clusters apart; None if the model reads no texts."""
    beside = f"{VOCABULARY}.json" in manifest.files
    if not beside and "texts.json" not in manifest.files:
        return None
    from dbull.tables.word_counts import WordCounts

    name, field = (VOCABULARY, "counts") if beside else ("sparse", "columns")
    where = str(folder.folder(manifest.generation) / f"{name}.json")
    stored = mapping(read_document(folder.path, manifest, name), where)
    if beside and not stored.get("columns"):  # embeddings without texts
        return None
    counts = WordCounts.from_document(stored.get(field), f"{where}.{field}")
    for cluster in counts.clusters:
        if cluster not in ledger:
            fail(where, f"words of cluster {cluster}, which is not there")
        into = int(ledger.resolve([cluster])[0])
        if into != cluster:
            counts.join(cluster, into)
    return {cluster: [word for word, _ in counts.top_words(cluster, N_WORDS)] for cluster in counts.clusters}


def _exemplars(folder: ModelFolder, manifest: Manifest, ledger: Ledger) -> dict[int, list[str]]:
    """Return the keys of the rows nearest to the centre of each cluster, as `clusters_` tells them."""
    if f"{EXEMPLARS}.json" not in manifest.files:
        return {}
    where = str(folder.folder(manifest.generation) / f"{EXEMPLARS}.json")
    document = read_document(folder.path, manifest, EXEMPLARS)
    listed = check_fields(document, where, {"exemplars": list_of(object_of(EXEMPLAR))})["exemplars"]
    asked = mapping(manifest.settings["parameters"], where).get("keep_exemplars", 0)
    most = max(N_KEYS, asked if isinstance(asked, int) else 0)
    found: dict[int, dict[str, None]] = {}
    for one in sorted(listed, key=lambda one: (one["depth"], one["key"])):
        if one["cluster"] not in ledger:
            fail(where, f"an exemplar of cluster {one['cluster']}, which is not there")
        found.setdefault(int(ledger.resolve([one["cluster"]])[0]), {})[one["key"]] = None
    return {cluster: list(keys)[:most] for cluster, keys in found.items()}


def compare_generations(folder: ModelFolder, a: int, b: int) -> dict[str, Any]:
    """Return what generation `b` has different from `a`, as far as a user is concerned.

    Files learned; clusters that came, went, or have other rows, another name or status, each as it was and
    as it is (None: not there); settings.
    """
    (ledger_a, one), (ledger_b, two) = read_ledger(folder, a), read_ledger(folder, b)
    learned_a, learned_b = folder.learned(a), folder.learned(b)
    hashes_a, hashes_b = ({name: part.sha256 for name, part in m.content.items()} for m in (one, two))
    equal = (one.settings, one.data_schema, hashes_a) == (two.settings, two.data_schema, hashes_b)
    rows_a, rows_b = ({row["id"]: row for row in ledger.table()} for ledger in (ledger_a, ledger_b))
    clusters = []
    for cluster in sorted({*rows_a, *rows_b}):
        before, after = rows_a.get(cluster, {}), rows_b.get(cluster, {})
        if any(before.get(name) != after.get(name) for name in ("id", "rows", "name", "status")):
            clusters.append({"id": cluster, "before": before or None, "after": after or None})
    parts = ("parameters", "reading")
    return {
        "a": a,
        "b": b,
        "equal": equal,
        "learned": names_beyond(learned_b, learned_a),
        "unlearned": names_beyond(learned_a, learned_b),
        "clusters": clusters,
        "settings": [asdict(c) for part in parts for c in changes(one.settings[part], two.settings[part])],
        "encoder_changed": one.encoder_fingerprint != two.encoder_fingerprint,
    }


def told_events(
    folder: ModelFolder, generation: int | None = None, *, abandoned: bool = False
) -> list[dict[str, Any]]:
    """Return what happened as `ModelFolder.events` does, after checking that each is an event of `DBULL`."""
    found = folder.events(generation, abandoned=abandoned)
    for stored in found:
        if stored.get("kind") == "rollback":
            fields = dict.fromkeys(("generation", "kind", "restores", "time"), anything) | {"note": text}
            check_fields(stored, f"{folder.path}: events", fields)
        else:
            stored["arrival"] = read_event(stored, folder).arrival
    return found


def read_event(stored: dict[str, Any], folder: ModelFolder) -> Event:
    """Return an event as the folder has it."""
    return Event.from_json({k: v for k, v in stored.items() if k != "generation"}, f"{folder.path}: events")


def change_ledger(folder: ModelFolder, change: Callable[[Ledger], None], note: str) -> Manifest:
    """Change names or marks of clusters, as one more generation; all else is as the newest has it."""
    ledger, newest = read_ledger(folder)
    folder.check_writable()
    n_events, time = ledger.n_events, now()
    change(ledger)
    checkpoint = Checkpoint(
        documents={"clusters": ledger.to_json(since=ledger.n_events)},
        events=[{**event.to_json(), "time": time} for event in ledger.since(n_events)],
        settings=newest.settings,
        data_schema=newest.data_schema,
        encoder_fingerprint=newest.encoder_fingerprint,
        ids_given=ledger.ids_given,
        note=note,
        time=time,
    )
    return folder.commit(checkpoint, newest, inherit=True)
