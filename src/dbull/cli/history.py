"""``dbull history``, ``rollback``, ``diff``, ``prune`` and ``check``: the generations of a model folder."""

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from dbull.cli.exits import ExitCode
from dbull.cli.options import AsJson, Model
from dbull.cli.output import check_text, say, show_json, show_rows
from dbull.errors import ModelFileError, SettingsError
from dbull.writing import now

if TYPE_CHECKING:
    from dbull.store import Manifest

MOST_CHANGES = 40  # lines of a comparison for people

Number = Annotated[int, Argument(metavar="GEN", help="As `dbull history` shows it.")]


def history(model: Model, as_json: AsJson = False) -> None:
    """List the generations, oldest first: when, what, rows learned, ids given so far, bytes on disk.

    Example: `dbull history model`
    """
    from dbull.store import ModelFolder

    folder = ModelFolder(model)
    folder.number()  # refuses a folder without a model
    rows: list[dict[str, Any]] = []
    for entry in folder.history():
        row: dict[str, Any] = {"generation": entry.generation}
        if (kept := entry.manifest) is not None:
            row |= {"time": kept.time, "note": _note(kept), "rows": kept.rows, "ids_given": kept.ids_given}
            files = os.scandir(folder.folder(entry.generation))
            row["bytes"] = sum(file.stat(follow_symlinks=False).st_size for file in files)
        rows.append({**row, "problem": entry.problem})
    columns = ("generation", "time", "note", "rows", "ids_given", "bytes")
    show_rows(rows, (*columns, "problem") if any(row["problem"] for row in rows) else columns, as_json)


def rollback(
    model: Model,
    to: Number,
    note: Annotated[str, Option(help="Why, for the history.", show_default=False)] = "",
) -> None:
    """Bring an older generation back as a new one. Nothing is deleted; ids given since stay taken.

    Inputs learned since are forgotten with it, so they may be learned again.

    Example: `dbull rollback model 3`
    """
    from dbull.store import ModelFolder

    manifest = ModelFolder(model).rollback(to, note=check_text("--note", note), time=now())
    say(f"generation {manifest.generation}: back to {to}")


def prune(
    model: Model,
    keep: Annotated[int, Option(help="How many generations to keep.", min=1)],
    leftovers: Annotated[
        bool,
        Option(
            "--leftovers",
            help="Also remove what unfinished writers on other machines left; only if none of them runs.",
        ),
    ] = False,
) -> None:
    """Remove tensors and documents of all but the newest generations; history, events and inputs stay.

    A pruned generation can be neither loaded nor brought back.

    Example: `dbull prune model --keep 10`
    """
    from dbull.store import ModelFolder

    folder = ModelFolder(model)
    count = folder.prune(keep, leftovers=leftovers, note=f"prune to {keep}", time=now())
    say(f"{count} files removed; generations from {folder.manifest().oldest} on are kept")


def diff(
    model: Model,
    a: Number,
    b: Annotated[int, Argument(metavar="GEN")],
    internals: Annotated[
        bool, Option("--internals", help="Every value and tensor that differs, clusters or not.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what the second generation has different from the first: files, clusters, settings.

    Example: `dbull diff model 1 2`
    """
    from dbull.methods.listing import compare_generations
    from dbull.store import ModelFolder

    folder = ModelFolder(model)
    # Models of other methods have no ledger.
    if internals or folder.manifest(b).settings.get("method", "dbull") != "dbull":
        found = asdict(difference := folder.diff(a, b)) | {"equal": difference.equal}
    else:
        found = compare_generations(folder, a, b)
    # A file is remembered by several facts of one name.
    found |= {name: list(dict.fromkeys(found[name])) for name in ("learned", "unlearned")}
    if as_json:
        show_json(found)
        return
    lines = [f"generations {a} and {b} answer alike"] if found["equal"] else []
    for sign, name in (("+", "learned"), ("-", "unlearned")):
        lines += _some([f"{sign} learned {name}" for name in found[name]])
    lines += _some([_told_cluster(one) for one in found.get("clusters", [])])
    values = [*found["settings"], *found.get("data_schema", []), *found.get("documents", [])]
    lines += _some([f"  {v['place']}: {v['before']!s:.60} -> {v['after']!s:.60}" for v in values])
    for tensor in found.get("tensors", []):
        by = f", by at most {tensor['largest']:.4g}" if tensor["largest"] is not None else ""
        lines.append(f"  {tensor['group']}/{tensor['name']}: {tensor['before']} -> {tensor['after']}{by}")
    if found["encoder_changed"]:
        lines.append("  the networks have learned: codes and probabilities of the same rows may differ")
    for line in lines or ["no cluster has changed; --internals lists what has"]:
        say(line)


def check(model: Model, as_json: AsJson = False) -> None:
    """Look at every file of every generation; name what is damaged and how to mend it (exit code 4).

    Example: `dbull check model`
    """
    from dbull.methods.storage import load
    from dbull.store import Finding, ModelFolder

    folder = ModelFolder(model)
    newest, report = folder.number(), folder.check()
    problems = list(report.problems)
    if newest in report.sound:
        try:
            load(model, events=False)
        except ModelFileError as error:  # every file is as it was written, and yet it is no model of ours
            problems.append(Finding(model, str(error)))
        except SettingsError:  # part of the model is a function that only its owner has
            pass
    if as_json:
        found = {"problems": problems, "notes": report.notes}
        numbers = {"generations": report.generations, "sound": report.sound}
        told = {name: [{"path": str(f.path), "text": f.text} for f in part] for name, part in found.items()}
        show_json({"ok": not problems, **numbers, **told})
    else:
        whole = [number for number in report.generations if number >= report.oldest]
        pruned = len(report.generations) - len(whole)
        told_pruned = f"; of {pruned} that were pruned the history is left" if pruned else ""
        say(f"{len(report.sound)} of {len(whole)} generations are sound{told_pruned}")
        if report.sound and len(report.sound) < len(whole):
            say(f"sound: {' '.join(map(str, report.sound))}")
        for problem in problems:
            where = "" if str(problem.path) in problem.text else f"{problem.path}: "
            say(f"problem: {where}{problem.text}")
        for finding in report.notes:
            say(f"note: {finding.path}: {finding.text}")
    if problems:
        raise Exit(ExitCode.MODEL_DAMAGED)


def _some(lines: list[str]) -> list[str]:
    """Return lines, or the first of too many of them."""
    more = len(lines) - MOST_CHANGES
    return [*lines[:MOST_CHANGES], f"  and {more} more; --json lists all"] if more > 0 else lines


def _told_cluster(change: dict[str, Any]) -> str:
    """Say in a line what became of a cluster."""
    before, after = change["before"], change["after"]
    if before is None or after is None:
        sign, row = ("+", after) if before is None else ("-", before)
        return f"{sign} {_cluster(row)}, {row['rows']:,} rows"
    told = []
    if before["name"] != after["name"]:
        told.append(f"named {after['name']}" if after["name"] else "no name any more")
    if before["status"] != after["status"]:
        into = f" into {after['merged_into']}" if after["status"] == "merged" else ""
        told.append(after["status"] + into)
    if before["rows"] != after["rows"]:
        told.append(f"{before['rows']:,} -> {after['rows']:,} rows")
    return f"  {_cluster(before)}: {', '.join(told)}"


def _cluster(row: dict[str, Any]) -> str:
    return f"cluster {row['id']}" + (f" ({row['name']})" if row["name"] else "")


def _note(manifest: "Manifest") -> str:
    if manifest.restores is None:
        return manifest.note
    return f"back to {manifest.restores}" + (f": {manifest.note}" if manifest.note else "")
