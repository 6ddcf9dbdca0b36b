"""PyTorch works on one thread, chunks of rows on several, and nothing depends on their number."""

import threading

import numpy as np
import pytest
import torch

import dbull
from dbull import threads
from dbull.errors import SettingsError
from dbull.threads import mapped, number_of_threads, working

RANDOM = np.random.default_rng(0)
ROWS = np.concatenate([RANDOM.normal(size=(1100, 4)) + 9 * RANDOM.normal(size=4) for _ in range(3)])


@pytest.fixture
def shared(monkeypatch):
    """Share all pieces, however small."""
    monkeypatch.setattr(threads, "WORTH_SHARING", 0.0)


@pytest.fixture
def torch_threads():
    """What another library has set."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


@pytest.mark.usefixtures("shared")
def test_pieces_are_shared_in_their_order():
    meet = threading.Barrier(2, timeout=60)  # two pieces at the same time, or an error

    def work(piece):
        if piece >= threads.TRIED:
            meet.wait()
        return piece, torch.is_grad_enabled(), torch.get_num_threads()

    with working(2), torch.no_grad():
        assert mapped(work, range(8)) == [(i, False, 1) for i in range(8)]


@pytest.mark.usefixtures("shared")
def test_pieces_of_a_piece_stay_on_its_thread():
    def work(piece):
        return {threading.get_ident(), *mapped(lambda _: threading.get_ident(), range(9))}

    with working(3):
        assert all(len(found) == 1 for found in mapped(work, range(9)))


def test_short_pieces_and_few_are_not_shared():
    with working(4):
        assert set(mapped(lambda _: threading.get_ident(), range(50))) == {threading.get_ident()}
    assert [number_of_threads(n) for n in (-1, 0, 1, 5)] == [1] * 4


def test_a_failure_in_a_piece_is_told_and_leaves_the_threads_as_they_were(shared, torch_threads):
    with pytest.raises(ZeroDivisionError), working(2):
        mapped(lambda piece: 1 / (5 - piece), range(9))
    assert torch.get_num_threads() == torch_threads


def test_the_variable_is_checked_and_gives_way(monkeypatch):
    monkeypatch.setenv("DBULL_THREADS", "3")
    assert (number_of_threads(100), number_of_threads(2), number_of_threads(100, 5)) == (3, 2, 5)
    monkeypatch.setenv("DBULL_THREADS", "auto")
    assert number_of_threads(2) == 1
    for wrong in ("0", "-1", "many", "1.5"):
        monkeypatch.setenv("DBULL_THREADS", wrong)
        with pytest.raises(SettingsError, match="DBULL_THREADS must be"):
            number_of_threads(100)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "many", None])
def test_a_wrong_number_is_refused(wrong):
    with pytest.raises(ValueError, match="threads must be"):
        dbull.DBULL(threads=wrong).fit(ROWS)


@pytest.mark.usefixtures("quick_learning", "shared")
@pytest.mark.parametrize("kind", ["mlp", "identity"])
def test_clusters_and_answers_do_not_depend_on_the_number(kind, torch_threads, tmp_path):
    found = []
    for number, other_library in ((1, None), (3, lambda _: torch.set_num_threads(4)), ("auto", None)):
        model = dbull.DBULL(encoder=kind, random_state=0, epochs=1, threads=number, callback=other_library)
        model.partial_fit(ROWS[::9]).partial_fit(ROWS)
        answers = model.predict(ROWS), model.transform(ROWS), model.score_samples(ROWS)
        found.append([answer.tobytes() for answer in (*answers, model.predict_proba(ROWS))])
    assert found[0] == found[1] == found[2]
    assert torch.get_num_threads() == torch_threads
    assert dbull.load(model.set_params(threads=2).save(tmp_path).origin_.path).threads == "auto", "not stored"


@pytest.mark.usefixtures("quick_learning", "torch_threads")
def test_networks_learn_on_one_thread_whatever_others_ask_for_meanwhile():
    seen = []

    def augment(values, generator):
        seen.append(torch.get_num_threads())
        return values

    model = dbull.DBULL(
        encoder="mlp", epochs=3, augment=augment, callback=lambda _: torch.set_num_threads(4), random_state=0
    )
    model.fit(ROWS[::30])
    assert len(seen) > 1
    assert set(seen) == {1}
