"""Give `dbull learn`, `preview` and `predict` damaged files: rows or a message of ours, never another error.

    python benchmarks/input_fuzz.py            # 2,000 files

Files are tables as they are met in the wild, damaged in two ways: bytes overwritten, cut, doubled or made up;
and, for text, fields that are no numbers, rows of other lengths, odd headers. The exit code must be 0 (the
damage left a table) or 3 (refused); the model must be whole at the end and hold what was said to be learned.
"""

from __future__ import annotations

import argparse
import gzip
import io
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from typer.testing import CliRunner

from dbull.cli import app
from dbull.store import ModelFolder
from writers import findings

DONE, REFUSED = 0, 3
COLUMNS = ("a", "b", "c")
NETWORKS = ("encoder='mlp'", "hidden_dims=[8]", "latent_dim=2", "epochs=2", "joint_epochs=1")
WORDS = "nan NaN inf -inf 1e999 -1e-999 1,5 0x1f 1_000 true None \" \"1 '1' =1+1 1e308 -0 +1 1. . 2026-11-16"
ODD_FIELDS = ["", " ", "\x00", "\ufeff", "é", "\uff11\uff12", "9" * 400, *WORDS.split()]


def table(draw: random.Random, n_rows: int) -> np.ndarray:
    """Return rows of two clusters."""
    noise = np.random.default_rng(draw.getrandbits(32)).normal(size=(n_rows, len(COLUMNS)))
    return noise + 10.0 * (np.arange(n_rows) % 2)[:, None]


def written(values: np.ndarray, suffix: str) -> bytes:
    """Return a file with the values."""
    sink = io.BytesIO()
    if suffix == ".npy":
        np.save(sink, values)
    elif suffix in (".parquet", ".arrow"):
        arrow = pa.table({name: values[:, i] for i, name in enumerate(COLUMNS)})
        if suffix == ".parquet":
            pyarrow.parquet.write_table(arrow, sink)
        else:
            with pa.ipc.new_file(sink, arrow.schema) as writer:
                writer.write_table(arrow)
    else:
        lines = [",".join(COLUMNS), *(",".join(f"{value:.4f}" for value in row) for row in values)]
        sink.write("\n".join(lines).encode() + b"\n")
    return sink.getvalue()


def with_odd_fields(content: bytes, draw: random.Random) -> bytes:
    """Damage a table as people and exports do."""
    lines = [line.split(",") for line in content.decode().splitlines()]
    for _ in range(draw.randint(1, 3)):
        line = draw.choice(lines)
        what = draw.randrange(6)
        if what <= 2:
            line[draw.randrange(len(line))] = draw.choice(ODD_FIELDS)
        elif what == 3:
            line.append(draw.choice(ODD_FIELDS))
        elif what == 4:
            del line[draw.randrange(len(line))]
        else:
            lines.insert(draw.randrange(len(lines)), draw.choice(lines)[:])
        lines = [line for line in lines if line] or [[""]]
    end = draw.choice(("\n", "\r\n", "\r", "\n\n"))
    return end.join(draw.choice((",", ",", ",", ";", "\t")).join(line) for line in lines).encode()


def with_odd_bytes(content: bytes, draw: random.Random) -> bytes:
    """Damage a file as disks and networks do."""
    what = draw.randrange(4)
    if what == 0:
        return content[: draw.randrange(len(content))]
    if what == 1:
        return draw.randbytes(draw.randrange(300))
    data = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(data))
        if what == 2:
            data[place] = draw.randrange(256)
        else:
            data[place:place] = data[draw.randrange(len(data)) :][: draw.randrange(1, 40)]
    return bytes(data)


def damaged(draw: random.Random) -> tuple[str, bytes]:
    """Return the suffix and the content of a damaged file."""
    suffix = draw.choice((".csv", ".csv", ".csv.gz", ".parquet", ".parquet", ".arrow", ".npy"))
    content = written(table(draw, draw.choice((1, 2, 7, 40))), suffix)
    if suffix.startswith(".csv") and draw.random() < 0.6:
        content = with_odd_fields(content, draw)
    elif suffix != ".csv.gz":
        content = with_odd_bytes(content, draw)
    if suffix == ".csv.gz":
        content = gzip.compress(content, mtime=0)
        if draw.random() < 0.5:
            content = with_odd_bytes(content, draw)
    return suffix, content


def run(n_files: int, seed: int, place: Path) -> tuple[Counter[str], list[str]]:
    """Give damaged files to the commands in turn; return how they ended, and what was wrong."""
    draw = random.Random(seed)
    model, first = place / "model", place / "first.csv"
    first.write_bytes(written(table(draw, 60), ".csv"))
    settings = [part for text in NETWORKS for part in ("--set", text)]
    runner = CliRunner()
    assert runner.invoke(app, ["learn", str(model), str(first), "-q", *settings]).exit_code == DONE
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    learned = 0
    for number in range(n_files):
        suffix, content = damaged(draw)
        path = place / f"damaged{suffix}"
        path.write_bytes(content)
        command = ("predict", "preview", "learn")[number % 3]
        more = ["-o", str(place / "out.csv")] if command == "predict" else []
        result = runner.invoke(app, [command, str(model), str(path), "-q", *more])
        ends[f"{command} {result.exit_code}"] += 1
        learned += command == "learn" and result.exit_code == DONE
        ours = result.exception is None or isinstance(result.exception, SystemExit)
        if result.exit_code not in (DONE, REFUSED) or not ours:
            kept = Path(tempfile.gettempdir()) / f"dbull-fuzz-{seed}-{number}{suffix}"
            kept.write_bytes(content)
            last = (result.stderr.strip().splitlines() or [repr(result.exception)])[-1]
            wrong.append(f"{command} {kept}: exit {result.exit_code}: {last}")
        elif result.exit_code == REFUSED and path.name not in result.stderr:
            wrong.append(f"{command}: the message does not name the file: {result.stderr.strip()[:200]}")
    folder = ModelFolder(model)
    wrong += findings(folder)
    known = sum(record.rows > 0 for record in folder.learned().values())  # the others are single rows
    if known != learned + 1:
        wrong.append(f"{learned} files were said to be learned, the model knows {known - 1}")
    return ends, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    started = perf_counter()
    with tempfile.TemporaryDirectory() as place:
        ends, wrong = run(arguments.files, arguments.seed, Path(place))
    print(f"{arguments.files} damaged files in {perf_counter() - started:.0f} s")
    print("  " + ", ".join(f"{end}: {n}" for end, n in sorted(ends.items())))
    print(f"another error than ours, or anything lost: {len(wrong)}")
    for line in wrong[:20]:
        print("  " + line)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
