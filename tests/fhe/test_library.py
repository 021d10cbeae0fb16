"""concrete-python in a process that does other things too."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import fhe
from fhe.library import _handler, signals_kept
from tests.cli.command import hear_interrupts

REPOSITORY = Path(fhe.__file__).parent.parent
IMPORTS = """
from fhe.library import concrete_fhe, signals_kept

library = concrete_fhe()
"""
RUNS = """
with signals_kept():
    circuit = library.Compiler(lambda x: x + 1, {"x": "encrypted"}).compile(range(4))
    assert circuit.encrypt_run_decrypt(2) == 3
"""
RUNS_A_CIRCUIT = IMPORTS + RUNS
EVALUATES = """
import faulthandler, os, signal, socket
import numpy as np

faulthandler.enable()
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append("terminate"))
signal.signal(signal.SIGINT, lambda *_: asked.append("interrupt"))

import fhe
from fhe.library import _handler, signals_kept
from tests.cli.command import hear_interrupts

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
raise SystemExit(3)
"""


WITHOUT_TORCH = (
    "import sys, threading\nimport numpy as np\n"
    + IMPORTS
    + """
from fhe.library import _torch_later

assert "torch" not in sys.modules
found = []

def wants_torch():
    import torch
    found.append(torch.float64)

with _torch_later():
    thread = threading.Thread(target=wants_torch)
    thread.start()
    thread.join()
import torch
assert found == [torch.float64]

x = np.arange(16).reshape(1, 1, 4, 4)
assert library.maxpool(x, kernel_shape=(2, 2), strides=(2, 2)).tolist() == [[[[5, 7], [13, 15]]]]
ones = np.ones((1, 1, 2, 2), dtype=int)
assert library.conv(x, ones, strides=(2, 2)).tolist() == [[[[10, 18], [42, 50]]]]
"""
)


def python(*arguments, folder=None):
    """Runs the interpreter as a user does, and returns what became of it."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        timeout=240,
        check=False,
        preexec_fn=hear_interrupts,
    )


def test_the_library_leaves_no_signal_handler_behind():
    """After an evaluation a peer may hang up, and the process ends and is interrupted as it chose.

    The library's own handlers are set at its import and at its first run; that of SIGPIPE ends the
    process. The status is the one that the process chose.
    """
    done = python("-c", EVALUATES)
    assert done.stdout.splitlines() == ["terminate interrupt", "broken pipe"], done.stderr
    assert done.returncode == 3


def test_the_import_does_without_torch_until_it_is_used():
    """What of the library wants torch works, and a thread that imports it meanwhile gets it."""
    done = python("-c", WITHOUT_TORCH)
    assert done.returncode == 0, done.stderr


def test_blocks_of_threads_that_overlap_put_back_what_stood_before_all_of_them():
    """The second block begins while the first one's library call has its own handlers set."""
    first, second = signals_kept(), signals_kept()
    before = signal.getsignal(signal.SIGUSR1)
    # One thread plays both, and would keep what the second one's start had blocked.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        with contextlib.ExitStack() as outer:
            outer.enter_context(first)
            signal.signal(signal.SIGUSR1, lambda *_: None)
            kept = _handler(signal.SIGUSR1).raw[:8]
            with second:
                outer.close()
        assert _handler(signal.SIGUSR1).raw[:8] != kept
    finally:
        signal.signal(signal.SIGUSR1, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


# How a process may end, as code, and its status: the number, or minus that of a signal.
ENDINGS = {
    "falls off its end": ("pass", 0),
    "sys.exit(0)": ("sys.exit(0)", 0),
    "sys.exit(3)": ("sys.exit(3)", 3),
    "sys.exit of a text": ("sys.exit('no')", 1),
    "an uncaught error": ("1 / 0", 1),
    "an error at exit": ("atexit.register(sys.exit, 9); sys.exit(3)", 3),
    "sys.exit in a thread": ("in_a_thread(sys.exit, 5); sys.exit(4)", 4),
    "an error in a thread": ("in_a_thread(int, 'x'); sys.exit(4)", 4),
    "os._exit": ("os._exit(6)", 6),
    "os._exit in a thread": ("in_a_thread(os._exit, 7)", 7),
    "os.abort": ("os.abort()", -6),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", -9),
    "terminated": ("os.kill(os.getpid(), signal.SIGTERM)", -15),
    "a broken memory access": ("os.kill(os.getpid(), signal.SIGSEGV)", -11),
    "interrupted": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", -2),
}
ENDS_IN_EVERY_WAY = (
    """
import atexit, json, os, signal, sys, threading, time

def in_a_thread(function, *arguments):
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    thread.join()

# Whoever runs the tests in the background ignores Ctrl-C, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
    + IMPORTS
    + """
found = {}
for name, code in json.loads(sys.argv[1]).items():
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        break
    found[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
else:
    print(json.dumps(found))
    sys.exit()
"""
    + RUNS
    + "exec(code)"
)


@pytest.fixture(scope="module")
def statuses():
    """How a process ended that ran a circuit, for each of `ENDINGS`.

    Each is a process of its own; they fork between import and run, for the import takes seconds.
    """
    codes = {name: code for name, (code, _) in ENDINGS.items()}
    done = python("-c", ENDS_IN_EVERY_WAY, json.dumps(codes))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("ending", ENDINGS)
def test_after_a_run_the_status_is_the_one_that_the_process_ended_with(statuses, ending):
    assert statuses[ending] == ENDINGS[ending][1]


FORKED = {
    "print('said at the end')": 0,
    "sys.exit(3)": 3,
    "1 / 0": 1,
    "atexit.register(print, 'handled'); sys.exit(4)": 4,
    "assert circuit.encrypt_run_decrypt(1) == 2; sys.exit(5)": 5,
}
FORKS_AFTER_A_RUN = (
    "import atexit, json, os, signal, sys\n"
    + RUNS_A_CIRCUIT
    + """
children = {}
for code in json.loads(sys.argv[1]):
    children[code] = os.fork()
    if children[code] == 0:
        signal.alarm(120)
        exec(code)
        break
else:
    ends = {code: os.waitpid(child, 0)[1] for code, child in children.items()}
    print(json.dumps({code: os.waitstatus_to_exitcode(end) for code, end in ends.items()}))
"""
)


def test_children_forked_after_a_run_end_with_their_status_too():
    """The library's destructors, not made for them, killed those that ended by themselves."""
    done = python("-c", FORKS_AFTER_A_RUN, json.dumps(list(FORKED)))
    *said, found = done.stdout.splitlines()
    assert json.loads(found) == FORKED, done.stderr
    assert sorted(said) == ["handled", "said at the end"]
    assert done.returncode == 0


def test_after_a_run_nothing_that_was_to_happen_at_exit_is_lost():
    """Handlers registered before and after the library's, and text that is still buffered."""
    script = f"""
import atexit, sys

atexit.register(print, "registered before")
{RUNS_A_CIRCUIT}
atexit.register(print, "registered after")
sys.stdout.write("buffered, ")
raise RuntimeError("the work failed")
"""
    done = python("-c", script)
    assert done.stdout == "buffered, registered after\nregistered before\n"
    assert done.stderr.endswith("RuntimeError: the work failed\n")
    assert done.returncode == 1


def test_after_a_run_a_started_process_tells_its_parent_how_it_ended(tmp_path):
    """`multiprocessing` starts an interpreter that ends as others do, its handlers included."""
    (tmp_path / "script.py").write_text(
        "import multiprocessing, sys\n\n"
        f"def work():\n{textwrap.indent(RUNS_A_CIRCUIT, '    ')}\n    sys.exit(3)\n\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    child.start()\n    child.join()\n    sys.exit(child.exitcode + 1)\n"
    )
    done = python(tmp_path / "script.py")
    assert done.returncode == 4, done.stderr


@pytest.mark.parametrize(
    "workers",
    [pytest.param([], id="alone", marks=pytest.mark.slow), pytest.param(["-n", "2"], id="workers")],
)
def test_pytest_is_red_if_a_test_fails_beside_one_that_ran_a_circuit(tmp_path, workers):
    """In a folder of its own, with the suite's options."""
    (tmp_path / "test_planted.py").write_text(
        f"def test_runs_a_circuit():\n{textwrap.indent(RUNS_A_CIRCUIT, '    ')}\n\n"
        "def test_fails():\n    assert False\n"
    )
    settings = REPOSITORY / "pyproject.toml"
    done = python("-m", "pytest", "-c", settings, "--rootdir", tmp_path, *workers, tmp_path)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 1
