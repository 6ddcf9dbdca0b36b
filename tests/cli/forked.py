"""`python -m dbull.cli` in a process of its own, at the cost of a fork instead of that of importing torch.

A server imports what takes long, once, and forks. A client as small as Python allows hands it its arguments,
folder, environment and standard streams, passes signals on, and ends as the forked process does; a SIGKILL
alone stays with the client. What the interpreter does with its environment when it starts is not seen here.
"""

import json
import os
import signal
import socket
import sys

STREAMS = ("stdin", "stdout", "stderr")
_servers = {}  # of this process, by its id: a fork of it starts its own


def forked_command():
    """Return the words that stand for `python -m dbull.cli`."""
    import subprocess
    import tempfile
    import time

    if os.getpid() not in _servers:
        path = os.path.join(tempfile.mkdtemp(prefix="dbull-"), "socket")
        # It ends with the pipe that is its standard input: when this process ends, however it does.
        words = [sys.executable, __file__, path, "serve"]
        server = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
        while not os.path.exists(path):
            assert server.poll() is None, "the server did not start"
            time.sleep(0.01)
        _servers[os.getpid()] = path, server
    return [sys.executable, "-IS", __file__, _servers[os.getpid()][0], "run"]


def serve(path):
    """Fork for each client, until standard input ends."""
    import gc
    import select
    import shutil

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    import sklearn.cluster  # noqa: F401
    import torch  # noqa: F401

    import dbull.methods.dbull  # noqa: F401

    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        if sys.stdin in select.select([sys.stdin, listener], [], [])[0]:
            shutil.rmtree(os.path.dirname(path))
            return
        client, _ = listener.accept()
        if os.fork():
            client.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        data, streams, *_ = socket.recv_fds(client, 1 << 20, len(STREAMS))
        while not data.endswith(b"\n"):
            data += client.recv(1 << 20)
        if child := os.fork():
            client.sendall(b"%d\n" % child)
            client.sendall(b"%d\n" % os.waitpid(child, 0)[1])
            os._exit(0)
        client.close()
        become(json.loads(data), streams)
        return


def become(given, streams):
    """Be the command, with all that it was given; then end as any interpreter does."""
    import runpy

    encoding, _, errors = given["environment"].get("PYTHONIOENCODING", "utf-8").partition(":")
    for number, name in enumerate(STREAMS):
        stream = None
        if name in given["streams"]:
            os.dup2(streams[given["streams"].index(name)], number)
            how = "backslashreplace" if name == "stderr" else errors or "strict"
            stream = open(number, "w" if number else "r", encoding=encoding, errors=how, closefd=False)  # noqa: SIM115
        else:
            os.close(number)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    for number in streams:
        os.close(number)
    os.environ.clear()
    os.environ.update(given["environment"])
    os.chdir(given["folder"])
    sys.path[:1] = ["", *filter(None, given["environment"].get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv[1:] = given["arguments"]
    runpy.run_module("dbull.cli", run_name="__main__", alter_sys=True)


def run(path, arguments):
    """Have the server run the command, and end as it does."""
    given = {
        "arguments": arguments,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "streams": [name for name in STREAMS if getattr(sys, name) is not None],
    }
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    socket.send_fds(client, [b" "], [STREAMS.index(name) for name in given["streams"]])
    client.sendall(json.dumps(given).encode() + b"\n")
    answers = client.makefile()
    child = int(answers.readline())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(child, number))
    # Whoever reads a stream sees its end only when nobody can write to it any more.
    for name in given["streams"]:
        os.close(STREAMS.index(name))
    status = int(answers.readline())
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    path, what, *arguments = sys.argv[1:]
    if what == "serve":
        serve(path)
    else:
        run(path, arguments)
