"""Signals while Ray starts and ends, in a program of the user's own: its handlers hear every one of them."""

import subprocess
import sys

from checkout import ROOT

PROGRAM = """
import os, signal, threading, time
from fedmbo_ray.runs.driver import start_ray
from fedmbo_ray.runs.ray_session import ray_session

heard, sent, over = [], [], threading.Event()

def send():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # they are for the main thread
    while not over.wait(0.02):
        os.kill(os.getpid(), signal.SIGTERM)
        sent.append(len(heard))

signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
sender = threading.Thread(target=send)
sender.start()
with ray_session():
    start_ray(1)
over.set()
sender.join()
before = len(heard)
os.kill(os.getpid(), signal.SIGTERM)
print(len(sent) > 20, len(heard) - before)
"""


def test_a_program_s_own_handler_hears_sigterm_while_ray_starts_and_ends() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True 1\n", "")
