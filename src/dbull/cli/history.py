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
    model: Model, a: Number, b: Annotated[int, Argument(metavar="GEN")], as_json: AsJson = False
) -> None:
    """Show what the second generation has different from the first.

    Example: `dbull diff model 1 2`
    """
    from dbull.store import ModelFolder

    found = ModelFolder(model).diff(a, b)
    # A file is remembered by several facts of one name.
    learned, unlearned = list(dict.fromkeys(found.learned)), list(dict.fromkeys(found.unlearned))
    if as_json:
        show_json({**asdict(found), "learned": learned, "unlearned": unlearned, "equal": found.equal})
        return
    if found.equal:
        say(f"generations {a} and {b} answer alike")
    for sign, names in (("+", learned), ("-", unlearned)):
        for name in names[:MOST_CHANGES]:
            say(f"{sign} learned {name}")
    if max(len(learned), len(unlearned)) > MOST_CHANGES:
        say(f"  {len(learned)} and {len(unlearned)} inputs in all; --json lists them")
    changes = [*found.settings, *found.data_schema, *found.documents]
    for change in changes[:MOST_CHANGES]:
        say(f"  {change.place}: {change.before!s:.60} -> {change.after!s:.60}")
    if len(changes) > MOST_CHANGES:
        say(f"  and {len(changes) - MOST_CHANGES} more; --json lists all")
    for tensor in found.tensors:
        by = f", by at most {tensor.largest:.4g}" if tensor.largest is not None else ""
        say(f"  {tensor.group}/{tensor.name}: {tensor.before} -> {tensor.after}{by}")


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


def _note(manifest: "Manifest") -> str:
    if manifest.restores is None:
        return manifest.note
    return f"back to {manifest.restores}" + (f": {manifest.note}" if manifest.note else "")
