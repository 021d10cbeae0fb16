"""The command in this process, as `securefl` runs it: the same entry, exit code and two streams.

What only a process of its own shows (signals, real exit status, closed streams) is tested with
`SECUREFL` in processes; a process for every refusal would cost a second each.
"""

import contextlib
import io
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from cli.main import main

SECUREFL = Path(sys.executable).parent / "securefl"
PASSPHRASE = {"SECUREFL_PASSPHRASE": "correct horse"}


def run(*arguments):
    """Exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(each) for each in arguments])
        except SystemExit as end:
            code = end.code
    return code or 0, out.getvalue(), err.getvalue()


def securefl(*arguments, check=0, environment=PASSPHRASE):
    """Runs the command and returns its standard output and error."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**environment, "HF_HUB_OFFLINE": "1"}.items():
            patch.setenv(name, value)
        for name in PASSPHRASE.keys() - environment.keys():
            patch.delenv(name, raising=False)
        code, out, err = run(*arguments)
    assert code == check, out + err
    return out, err


def digits_of(folder, clients):
    """Digits in `digits`, and a number of clients that share them in `clients`."""
    securefl("data", "digits", folder / "digits")
    source = folder / "digits" / "train.npz"
    securefl("data", "partition", source, folder / "clients", "--clients", clients)


def first_records(folder, out, count):
    """Clients with the first records of others: noise is calibrated and drawn in less time."""
    out.mkdir()
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as stored:
            np.savez(out / path.name, **{name: stored[name][:count] for name in stored})
    return out


def refused(*arguments):
    """The one line with which the command refuses."""
    out, err = securefl(*arguments, check=2)
    assert out == ""
    assert "Traceback" not in err
    line = err.strip().splitlines()[-1]
    assert line.startswith("error: ")
    return line


def hear_interrupts():
    """`preexec_fn` of processes that are interrupted: Ctrl-C as a person's shell has it.

    Whoever runs the tests in the background ignores it, and children inherit that.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def environment_of_commands():
    """For processes that find `securefl` by its name."""
    path = f"{SECUREFL.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HF_HUB_OFFLINE": "1"}
