"""Signals while Ray starts and ends, in a program of the user's own: its handlers hear every one of them."""

import subprocess
import sys

from checkout import ROOT

PROGRAM = """
import os, signal, threading, time
from fedmbo_ray.runs.driver import start_ray
from fedmbo_ray.runs.ray_session import ray_session

heard, sent, over = [], [], threading.Event()

def send():  # one at a time: signals that wait together count as one
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # they are for the main thread
    while not over.wait(0.02):
        if len(heard) == len(sent):
            sent.append(1)
            os.kill(os.getpid(), signal.SIGTERM)

signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
sender = threading.Thread(target=send)
sender.start()
with ray_session():
    start_ray(1)
over.set()
sender.join()
time.sleep(0.1)
before = len(heard)
os.kill(os.getpid(), signal.SIGTERM)
print(len(sent) > 1, len(sent) - before, len(heard) - before)
"""


def test_a_program_s_own_handler_hears_sigterm_while_ray_starts_and_ends() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True 0 1\n", "")
