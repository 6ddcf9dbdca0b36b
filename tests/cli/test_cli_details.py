"""What a walk through the commands found: the small things that make people trust or leave a tool."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from forked import forked_command
from test_cli_models import answer, made, place, rows, run, write

from dbull.cli import app, output
from dbull.cli.options import read_config
from dbull.experiments import settings as settings_module
from dbull.ingest import Learner
from dbull.store import ModelFolder

__all__ = ["made", "place"]  # fixtures
pytestmark = pytest.mark.usefixtures("quick_module")


def learned(folder):
    return [row["rows"] for row in answer("history", folder)]


# Files


def test_of_a_table_to_which_rows_were_added_only_these_are_learned(place):
    text = (place / "tuesday.csv").read_text()
    log = place / "log.csv"
    log.write_text(text.rstrip("\n"))  # the last line without an end
    run("learn", place / "model", log, "-q")
    more = write(place / "more.csv", rows((1, 2), 10, seed=5)[:, [2, 0, 1]], "cab").read_text()
    log.write_text(text + more.partition("\n")[2])
    assert "log.csv rows 101-120, 20 rows" in run("learn", place / "model", log, "-q").stdout
    run("learn", place / "model", log, "-q", code=3)
    log.write_text(log.read_text() + more.partition("\n")[2])
    run("learn", place / "model", log, "-q")
    assert learned(place / "model") == [120, 100, 20, 20]
    assert sum(row["rows"] for row in answer("clusters", place / "model")) == 260


@pytest.mark.parametrize("text", ["id,a,b,c\n", "\nid,a,b,c\n\n"])
def test_lines_need_not_be_rows_for_added_rows_to_be_told(tmp_path, text):
    values = rows((0, 1), 20)
    lines = [f'"row\n{i}",{a},{b},{c}\n\n' for i, (a, b, c) in enumerate(values.tolist())]
    log, renamed = tmp_path / "log.csv", tmp_path / "log-of-may.csv"
    log.write_text(text + "".join(lines[:30]))
    run("learn", tmp_path / "model", log, "--key", "id", "-q")
    log.write_text(text + "".join(lines))
    shutil.move(log, renamed)
    run("learn", tmp_path / "model", renamed, "-q")
    assert learned(tmp_path / "model") == [30, 10]


def test_a_line_that_was_cut_short_and_is_whole_now_counts_once(tmp_path):
    log = tmp_path / "log.csv"
    text = write(log, rows((0, 1), 20)).read_text()
    log.write_text(text[:-5])
    run("learn", tmp_path / "model", log, "-q")
    log.write_text(text + "1.5,2.5,3.5\n")
    run("learn", tmp_path / "model", log, "-q")
    assert learned(tmp_path / "model") == [40, 1]


def test_a_table_that_grows_after_a_stop_goes_on_where_it_was(tmp_path):
    log = write(tmp_path / "log.csv", rows((0, 1), 60))
    learner = Learner(tmp_path / "model", read_config(None, [], {"arrival_rows": 30}))
    arrivals = learner.learn(log)
    next(arrivals)
    next(arrivals)  # and then the machine is switched off
    with log.open("a") as handle:
        handle.write("1.5,2.5,3.5\n")
    run("learn", tmp_path / "model", log, "--arrival-rows", 1000, "-q")
    assert learned(tmp_path / "model") == [30, 30, 61]
    run("learn", tmp_path / "model", log, "-q", code=3)
    with log.open("a") as handle:
        handle.write("1.5,2.5,3.5\n")
    run("learn", tmp_path / "model", log, "-q")
    assert learned(tmp_path / "model") == [30, 30, 61, 1]


def test_rows_that_come_while_a_table_is_learned_wait_for_their_turn(tmp_path):
    log = write(tmp_path / "log.csv", rows((0, 1), 60))
    learner = Learner(tmp_path / "model", read_config(None, [], {"arrival_rows": 40}))
    arrivals = learner.learn(log)
    next(arrivals)
    with log.open("a") as handle:
        handle.write("1.5,2.5,3.5\n" * 7)
    assert [one.report.n_rows for one in arrivals] == [40, 40]
    run("learn", tmp_path / "model", log, "-q")
    assert learned(tmp_path / "model") == [40, 40, 40, 7]


def test_added_rows_go_on_after_a_stop(place):
    text = (place / "tuesday.csv").read_text()
    log, straight = place / "log.csv", place / "straight"
    log.write_text(text)
    shutil.copytree(place / "model", straight)
    more = write(place / "more.csv", rows((1, 2), 40, seed=5)[:, [2, 0, 1]], "cab").read_text()
    for folder, limit in ((straight, None), (place / "model", 3)):
        log.write_text(text)
        run("learn", folder, log, "-q")
        log.write_text(text + more.partition("\n")[2])
        run("learn", folder, log, "--arrival-rows", 40, "-q")
        if limit is not None:  # as if it had been stopped after the first of the two arrivals
            shutil.rmtree(folder / "gen-00000004")
            run("learn", folder, log, "--arrival-rows", 40, "-q")
    assert learned(place / "model") == learned(straight) == [120, 100, 40, 40]


@pytest.mark.parametrize("end", ["\n", "\n\n", "5\n"])
def test_a_table_to_which_no_row_was_added_is_left_out(place, end):
    log = place / "log.csv"
    log.write_text((place / "tuesday.csv").read_text().rstrip("\n"))
    run("learn", place / "model", log, "-q")
    log.write_text(log.read_text() + end)
    other = write(place / "other.csv", rows((0, 1), 10, seed=8))
    assert "no rows were added" in run("learn", place / "model", log, other, "-q").stderr
    run("learn", place / "model", log, "-q", code=3)
    assert learned(place / "model") == [120, 100, 20]


def test_an_older_copy_does_not_hide_what_was_learned_of_a_table(tmp_path):
    lines = write(tmp_path / "new.csv", rows((0, 1), 60)).read_text().splitlines(keepends=True)
    (tmp_path / "old.csv").write_text("".join(lines[:51]))
    arrivals = Learner(tmp_path / "model", read_config(None, [], {"arrival_rows": 30})).learn(
        tmp_path / "new.csv"
    )
    next(arrivals)
    next(arrivals)
    run("learn", tmp_path / "model", tmp_path / "old.csv", "-q")
    run("learn", tmp_path / "model", tmp_path / "new.csv", "-q")
    assert learned(tmp_path / "model") == [30, 30, 50, 60]


def test_a_forced_pass_goes_on_after_a_stop(tmp_path):
    table = write(tmp_path / "table.csv", rows((0, 1), 60))
    run("learn", tmp_path / "model", table, "-q")
    for _ in range(2):
        config = read_config(None, [], {"arrival_rows": 30})
        arrivals = Learner(tmp_path / "model", config, force=True).learn(table)
        next(arrivals)
        next(arrivals)
        run("learn", tmp_path / "model", table, "--force", "-q")
    assert learned(tmp_path / "model") == [120, 30, 30, 60, 30, 30, 60]
    run("learn", tmp_path / "model", table, "-q", code=3)


def test_a_file_without_the_key_of_the_first(tmp_path):
    values = rows((0, 1), 60)
    names = np.array([f"row-{i}" for i in range(len(values))])
    keyed = tmp_path / "keyed.csv"
    keyed.write_text(
        "id,a,b,c\n" + "\n".join(f"{n},{a},{b},{c}" for n, (a, b, c) in zip(names, values, strict=True))
    )
    run("learn", tmp_path / "model", keyed, "--key", "id", "-q")
    plain = write(tmp_path / "plain.csv", rows((0, 1), 20, seed=2))
    head = run("predict", tmp_path / "model", plain, "-q").stdout.splitlines()[0]
    assert head.startswith("row,cluster")
    assert run("predict", tmp_path / "model", keyed, "-q").stdout.startswith("key,row,cluster")
    assert answer("preview", tmp_path / "model", plain, "-q")[0]["rows"] == 40
    run("learn", tmp_path / "model", plain, "-q")
    np.save(tmp_path / "plain.npy", rows((0, 1), 20, seed=3))
    run("learn", tmp_path / "model", tmp_path / "plain.npy", "-q")
    with plain.open("rb") as stream:
        command = [*forked_command(), "predict", str(tmp_path / "model"), "-", "-q"]
        assert subprocess.run(command, stdin=stream, capture_output=True).returncode == 0
    assert "no column 'name'" in run("predict", tmp_path / "model", plain, "--key", "name", code=3).stderr


def test_a_key_among_the_columns_is_refused(place):
    result = run("learn", place / "new", place / "monday.csv", "--columns", "a,b", "--key", "a", code=2)
    assert "take it out of columns" in result.stderr


def test_a_file_twice_in_a_dry_run_counts_once(place):
    twice = (place / "tuesday.csv", place / "tuesday.csv")
    result = run("learn", place / "model", *twice, "--dry-run", "-q")
    assert result.stdout.count("would be") == 1
    assert "left out" in result.stderr


def test_rows_per_arrival_belong_to_the_command(place):
    run("learn", place / "new", place / "monday.csv", "--arrival-rows", 60, "-q")
    run("learn", place / "new", place / "tuesday.csv", "-q")
    assert learned(place / "new") == [60, 60, 100]


def test_watch_once_waits_for_files_to_settle_if_asked_to(place):
    (place / "inbox").mkdir()
    shutil.copy(place / "tuesday.csv", place / "inbox")
    os.utime(place / "inbox" / "tuesday.csv")
    watch = ("watch", place / "model", place / "inbox", "--once", "-q")
    assert run(*watch, "--settle", 60).stdout == ""
    assert "tuesday.csv" in run(*watch).stdout


def test_a_first_line_that_may_be_a_row_with_a_hole_is_refused(place):
    (place / "hole.csv").write_text("1.5,,3.0\n1,2,3\n4,5,6\n")
    assert "--set header=false" in run("learn", place / "new", place / "hole.csv", code=3).stderr
    (place / "spectra.csv").write_text("name,400.5,401.0\na,2,3\nb,5,6\nc,2,4\n")
    run("learn", place / "new-too", place / "spectra.csv", "--key", "name", "-q")
    assert len(run("predict", place / "new-too", place / "spectra.csv", "-q").stdout.splitlines()) == 4
    assert 'key = "name"' in run("init", "--from", place / "spectra.csv").stdout
    (place / "words.csv").write_text("a,inf,b\n1,2,3\n4,5,6\n")
    run("learn", place / "new-three", place / "words.csv", "-q")
    (place / "numbered.csv").write_text("id,0,1\n1,2,3\n4,5,6\n")
    run("learn", place / "new", place / "numbered.csv", "--key", "id", "-q")


# Settings


def test_init_tells_what_names_the_rows(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    numbers = {"x": [0.5, 1.5], "y": [1.0, 2.0]}
    pyarrow.parquet.write_table(pyarrow.table({"who": ["a", "b"], **numbers}), tmp_path / "t.parquet")
    pyarrow.feather = pytest.importorskip("pyarrow.feather")
    pyarrow.feather.write_feather(pyarrow.table({"user_id": [1, 2], **numbers}), tmp_path / "t.arrow")
    (tmp_path / "t.csv").write_text(' id,x\n7,"1"\n8,2\n')
    (tmp_path / "quotes.csv").write_text('"the ""name""",x\na,1\nb,2\n')
    (tmp_path / "width.csv").write_text("width,x\n1,1\n2,2\n")
    for file, key in (
        ("t.parquet", "who"),
        ("t.arrow", "user_id"),
        ("t.csv", "id"),
        ("quotes.csv", 'the "name"'),
        ("width.csv", None),
    ):
        settings = settings_module.tomllib.loads(run("init", "--from", tmp_path / file).stdout)
        assert settings.get("key") == key, file


def test_a_variable_that_is_nearly_a_setting_is_refused(place, monkeypatch):
    monkeypatch.setenv("DBULL_COLOUR_OF_ANOTHER_TOOL", "red")
    monkeypatch.setenv("DBULL_DATA", str(place))
    run("learn", place / "model", place / "tuesday.csv", "--dry-run", "-q")
    monkeypatch.setenv("DBULL_MAX_CLUSTER", "5")
    result = run("learn", place / "model", place / "tuesday.csv", code=2)
    assert "did you mean DBULL_MAX_CLUSTERS?" in result.stderr


# Messages


def test_a_folder_of_tables_is_told_from_images(place):
    (place / "inbox").mkdir()
    (place / "inbox" / "note.txt.bak").touch()
    assert "no tables and no images" in run("learn", place / "model", place / "inbox", code=3).stderr
    shutil.copy(place / "tuesday.csv", place / "inbox")
    assert "tuesday.csv" in run("learn", place / "model", place / "inbox", "--dry-run", "-q").stdout
    assert "tuesday.csv" in run("learn", place / "model", f"{place}/inbox/*.c?v", "--dry-run", "-q").stdout
    assert "no file matches" in run("learn", place / "model", f"{place}/inbox/*.tsv", code=3).stderr


def test_an_array_is_named_as_the_command_line_has_it(place):
    np.savez(place / "two.npz", a=rows((0,), 3), b=rows((1,), 3))
    assert "--set 'array=" in run("learn", place / "new", place / "two.npz", code=3).stderr
    run("learn", place / "new", place / "two.npz", "--set", "array='a'", "-q")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_model_that_cannot_be_written_is_refused_before_learning(place):
    (place / "model").chmod(0o500)
    try:
        assert "make it so" in run("learn", place / "model", place / "tuesday.csv", code=1).stderr
    finally:
        (place / "model").chmod(0o700)


def test_a_folder_without_permission_is_found_early(place, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode, **_: mode != os.W_OK | os.X_OK)
    assert "make it so" in run("learn", place / "model", place / "tuesday.csv", code=1).stderr
    assert "make it so" in run("learn", place / "new" / "deep", place / "tuesday.csv", code=1).stderr
    assert "make it so" in run("rename", place / "model", 0, "x", code=1).stderr
    run("rename", place / "no-model", 0, "x", code=4)
    run("clusters", place / "model")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_full_disks(place):
    model = str(place / "model")
    on_model = (["clusters", model], ["predict", model, str(place / "monday.csv")])
    for command in (*on_model, ["--version"], ["--help"], ["learn", "--help"], ["data", "--help"]):
        with open("/dev/full", "w") as full:
            ended = subprocess.run(
                [*forked_command(), *command], stdout=full, stderr=subprocess.PIPE, text=True
            )
        assert ended.returncode == 1
        assert "standard output: cannot be written (No space left on device)" in ended.stderr
        assert "run the same again" not in ended.stderr, "a model may have learned by then"
        assert "Traceback" not in ended.stderr
        assert "Exception ignored" not in ended.stderr


def test_a_reader_that_has_enough(place):
    """As with `dbull predict ... | head -1`."""
    big = write(place / "big.csv", rows((0, 1), 3000))
    command = [sys.executable, "-m", "dbull.cli", "predict", str(place / "model"), str(big), "-q"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("row,cluster")
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_nobody_reads_the_lines_and_all_is_learned(place):
    other = write(place / "other.csv", rows((0, 3), 40, seed=3))
    command = [*forked_command(), "learn", str(place / "model"), str(place / "tuesday.csv")]
    with subprocess.Popen([*command, str(other), "-q"], stdout=subprocess.PIPE) as process:
        process.stdout.close()
    assert process.returncode == 0
    assert learned(place / "model") == [120, 100, 80]


def test_standard_output_that_is_closed(place):
    for command in (["clusters"], ["rename", "0", "zeros"]):
        words = [*forked_command(), command[0], str(place / "model"), *command[1:]]
        ended = subprocess.run(
            ["sh", "-c", '"$@" >&-', "sh", *words], stderr=subprocess.PIPE, text=True, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, "")


def test_a_disk_that_fills_up_is_not_the_fault_of_the_command(place, monkeypatch):
    def fail(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    arguments = ("predict", place / "model", place / "monday.csv", "-o", place / "p.csv", "-q")
    assert "No space left" in run(*arguments, code=1).stderr
    monkeypatch.setattr(Path, "replace", fail)
    assert "No space left" in run("report", place / "model", "-o", place / "r.html", code=1).stderr
    assert not list(place.glob("*p.csv*"))
    assert not list(place.glob("*r.html*"))


def test_a_generation_that_is_missing_in_the_middle(place):
    run("learn", place / "model", place / "tuesday.csv", "-q")
    run("rename", place / "model", 0, "zeros")
    told = run("events", place / "model", "--json").stdout
    shutil.rmtree(place / "model" / "gen-00000002")
    assert run("events", place / "model", "--json").stdout == told, "the log has them, and is verified"
    (place / "model" / "events.jsonl").unlink()
    assert "gen-00000002" in run("events", place / "model", code=4).stderr


def test_generations_are_named_as_ranges(place):
    for name in ("one", "two", "three"):
        run("rename", place / "model", 0, name)
    shutil.rmtree(place / "model" / "gen-00000002")
    assert "there are 1, 3 to 4" in run("rollback", place / "model", 9, code=2).stderr


# Clusters and events


def test_rollbacks_among_the_events(place):
    run("learn", place / "model", place / "tuesday.csv", "-q")
    run("rollback", place / "model", 1, "--note", "bad day")
    assert "back to 1, note bad day" in run("events", place / "model", "--all").stdout
    assert len(answer("events", place / "model", "--kind", "rollback")) == 1
    assert "rollback" not in run("events", place / "model").stdout


def test_check_is_content_after_a_rollback_over_damage(place):
    run("learn", place / "model", place / "tuesday.csv", "-q")
    path = next((place / "model" / "gen-00000002").glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-1])
    run("check", place / "model", code=4)
    run("rollback", place / "model", 1)
    assert "does not need it" in run("check", place / "model").stdout


def test_what_comes_of_a_retired_and_an_active_cluster_is_active(place):
    run("retire", place / "model", 0)
    assert "there are [0, 1]" in run("merge", place / "model", 0, 7, code=2).stderr
    run("merge", place / "model", 0, 1)
    assert [row["status"] for row in answer("clusters", place / "model")] == ["active"]


def test_history_counts_every_byte(place):
    (row,) = answer("history", place / "model")
    assert row["bytes"] == sum(f.stat().st_size for f in ModelFolder(place / "model").folder(1).iterdir())


# What is printed


def test_names_cannot_command_the_terminal(place):
    run("rename", place / "model", 0, "\x1b[31mred\x07")
    for command in (("clusters",), ("clusters", 0), ("history",), ("events",)):
        assert "\x1b" not in run(command[0], place / "model", *command[1:]).stdout
    assert answer("clusters", place / "model")[0]["name"] == "\x1b[31mred\x07"


def test_tables_fit_the_terminal(place, monkeypatch, capsys):
    run("learn", place / "model", place / "tuesday.csv", "--name", "a long name " * 8, "-q")
    found = answer("events", place / "model")
    table = [{"kind": event["kind"], "evidence": json.dumps(event["evidence"])} for event in found]
    monkeypatch.setattr(output.shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((80, 24)))
    output.show_table(table, ("kind", "evidence"))
    piped = capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    output.show_table(table, ("kind", "evidence"))
    narrow = capsys.readouterr().out
    assert max(map(len, narrow.splitlines())) == 80
    assert "…" in narrow
    assert "…" not in piped
    assert max(map(len, piped.splitlines())) > 80


def test_names_of_bench_as_json():
    names = answer("bench", "--list")
    assert "split-mnist" in names["scenarios"]
    assert "dbull" in names["methods"]


def test_preview_tells_how_it_goes(place, monkeypatch):
    from dbull.cli import progress

    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    assert "tuesday.csv: " in run("preview", place / "model", place / "tuesday.csv").stderr
    assert run("preview", place / "model", place / "tuesday.csv", "-q").stderr == ""


def test_examples_of_the_help_can_be_copied():
    for command in app.registered_commands:
        assert "`." not in (command.callback.__doc__ or "").partition("Example")[2], command.callback.__name__
