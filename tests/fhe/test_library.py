"""concrete-python in a process that does other things too."""

import subprocess
import sys

EVALUATES = """
import faulthandler, os, signal, socket
import numpy as np

faulthandler.enable()
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append("terminate"))
signal.signal(signal.SIGINT, lambda *_: asked.append("interrupt"))

import fhe

parameters = fhe.RuleParameters(contributors=2, classes=2, bits=4, block=1, failure_exponent=40)
keys = fhe.generate_keys(parameters)
public = fhe.make_public_key(keys)
facts = {"federation": "f", "batch": "b"}
sent = [
    fhe.contribute(np.array([[9, i]]), public, contributor=i, name=str(i), **facts)
    for i in range(2)
]
fhe.evaluate(sent, keys.evaluation, public)

os.kill(os.getpid(), signal.SIGTERM)
os.kill(os.getpid(), signal.SIGINT)
print(*asked)
ours, theirs = socket.socketpair()
theirs.close()
try:
    ours.send(b"x")
except BrokenPipeError:
    print("broken pipe")
"""


def test_the_library_leaves_no_signal_handler_behind():
    """After an evaluation a peer may hang up, and the process ends and is interrupted as it chose.

    The library's own handlers are set at its import and at its first run; that of SIGPIPE ends the
    process.
    """
    done = subprocess.run(
        [sys.executable, "-c", EVALUATES], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines() == ["terminate interrupt", "broken pipe"], done.stderr
    assert done.returncode == 0
