"""The page in a real browser without a network: it renders, runs without an error, and asks for nothing."""

import os
import re
import shutil
import socket
import subprocess
import threading
from contextlib import contextmanager

import pytest

from dbull.report import write_report

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = os.environ.get("DBULL_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium on the path; DBULL_CHROMIUM names one that is elsewhere"
)
CONSOLE = re.compile(r":CONSOLE[:(].*")


@contextmanager
def listening_proxy():
    """Yield the port of a proxy that answers nobody, and the list of what it was asked for."""
    asked: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def listen():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(60)
                try:
                    asked.append(connection.recv(400).split(b"\r\n")[0])
                except OSError:
                    asked.append(b"?")

    threading.Thread(target=listen, daemon=True).start()
    try:
        yield server.getsockname()[1], asked
    finally:
        server.close()


def opened(path, tmp_path, *more):
    """Return the page as the browser has it, what it said on its console, and what it asked a proxy for."""
    with listening_proxy() as (port, asked):
        done = subprocess.run(
            [
                BROWSER,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-default-apps",
                "--disable-sync",
                "--disable-features=OptimizationHints,MediaRouter,Translate",
                f"--user-data-dir={tmp_path / 'profile'}",
                f"--proxy-server=127.0.0.1:{port}",
                "--proxy-bypass-list=<-loopback>",
                "--enable-logging=stderr",
                "--virtual-time-budget=3000",
                *more,
                "--dump-dom",
                path.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    said = CONSOLE.findall(done.stderr)
    # What a browser asks for of its own accord goes to its maker.
    foreign = [line for line in asked if b"google" not in line and b"gvt1" not in line]
    return done.stdout, said, foreign


@pytest.mark.parametrize("which", ["data", "image_data"])
def test_page_renders_without_an_error_or_a_request(which, request, tmp_path):
    report = request.getfixturevalue(which)
    path = write_report(report, tmp_path / "report.html")
    dom, said, asked = opened(path, tmp_path, "--window-size=400,900")
    assert dom.count("<article") == len(report.clusters)
    assert '<div class="tools">' in dom  # the script ran to where it shows what needs it
    assert said == []
    assert asked == []


def test_the_test_would_notice(tmp_path):
    path = tmp_path / "bad.html"
    path.write_text(
        "<!doctype html><title>x</title><img src='http://example.test/x'><script>throw Error('x')</script>"
    )
    _, said, asked = opened(path, tmp_path)
    assert any("Error: x" in line for line in said)
    assert any(b"example.test" in line for line in asked)


def test_dark_and_light_differ_and_the_page_fits_a_narrow_screen(data, tmp_path):
    path = write_report(data, tmp_path / "report.html")
    measure = (
        "<script>addEventListener('load', () => { const d = document.documentElement;"
        "d.dataset.over = d.scrollWidth - d.clientWidth;"
        # A window may be wider than asked for, so the links are measured in the width of a phone.
        "document.body.style.width = '390px'; const links = [...document.querySelectorAll('nav a')];"
        "d.dataset.links = Math.max(...links.map(a => a.getBoundingClientRect().right));"
        "d.dataset.ground = getComputedStyle(document.body).backgroundColor; })</script></body>"
    )
    path.write_text(path.read_text(encoding="utf-8").replace("</body>", measure), encoding="utf-8")
    grounds = set()
    for number, scheme in enumerate(("0", "1")):
        dom, _, _ = opened(
            path,
            tmp_path / str(number),
            "--window-size=360,800",
            f"--blink-settings=preferredColorScheme={scheme}",
        )
        assert re.search(r'data-over="(-?\d+)"', dom).group(1) == "0"
        assert float(re.search(r'data-links="([\d.]+)"', dom).group(1)) <= 390
        grounds.add(re.search(r'data-ground="([^"]+)"', dom).group(1))
    assert len(grounds) == 2
