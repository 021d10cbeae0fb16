"""The line of the network's benchmark: all that goes in comes out, in order, and not too early."""

import random
import socket
import subprocess
import sys
import threading
import time

import pytest

from benchmarks._line import TIMER, lateness
from secure_fl.demo.flower_parties import free_port


@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_bytes_arrive_whole_in_order_and_after_the_delay(loss):
    sent, delay = random.Random(0).randbytes(300_000), 0.02
    with socket.create_server(("127.0.0.1", 0)) as server:
        entry, far = free_port(), server.getsockname()[1]
        command = ["-m", "benchmarks._line", str(entry), str(far), str(delay), str(loss)]
        line = subprocess.Popen([sys.executable, *command])
        try:
            start = time.monotonic()
            own = connected(entry)
            threading.Thread(target=lambda: (own.sendall(sent), own.shutdown(1))).start()
            there, _ = server.accept()
            heard = b"".join(iter(lambda: there.recv(1 << 16), b""))
            assert heard == sent
            there.sendall(b"back")
            there.close()
            assert b"".join(iter(lambda: own.recv(100), b"")) == b"back"
            # A round trip before the first byte, and the bytes' own way there and back.
            assert time.monotonic() - start >= 4 * delay
        finally:
            line.kill()
            line.wait()


def connected(port):
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the line does not listen")


def test_losses_cost_a_round_trip_or_the_timer():
    class Says(random.Random):
        def __init__(self, *lost):
            self.lost = list(lost)

        def random(self):
            return 0.0 if self.lost.pop(0) else 1.0

    delay = 0.1
    assert lateness(3, delay, 0.5, Says(0, 0, 0)) == 0
    # The first of six is told by later ones; the last is not, and then its timer doubles.
    assert lateness(6, delay, 0.5, Says(1, 0, 0, 0, 0, 0, 0)) == 2 * delay
    timer = TIMER + 2 * delay
    assert lateness(1, delay, 0.5, Says(1, 0)) == timer
    assert lateness(1, delay, 0.5, Says(1, 1, 0)) == 3 * timer
    assert lateness(6, delay, 0.5, Says(1, 1, 0, 0, 0, 0, 0, 0)) == 2 * delay + timer
