"""Signals at awkward moments: during imports, in finalizers, while a library handles them its own way, at the end."""

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from checkout import ROOT

from fedmbo_ray.cli.command import guarded
from fedmbo_ray.core import interruptions
from fedmbo_ray.core.interruptions import Interruptions, at_stake, deferred, interruptible
from fedmbo_ray.core.process_state import handlers_without, held_back

COMMAND = """
import atexit, signal, sys, threading, time, types
from fedmbo_ray.core import interruptions
from fedmbo_ray.core.entry import enter
from fedmbo_ray.core.interruptions import at_stake, last_step

interruptions.SOON = 30.0

def main():
    from fedmbo_ray.cli.command import guarded
    return guarded(work, lambda: "; continue: this way")

def ready():
    print("ready", flush=True)
    time.sleep(60)

command = types.ModuleType("fedmbo_ray.cli.probe")
command.main = main
sys.modules[command.__name__] = command
atexit.register(print, "goodbye")
"""
WITHIN_AN_IMPORT = """
def work():
    with last_step(lambda: print("last step", flush=True)):
        try:
            ready()
        except KeyboardInterrupt:
            raise ImportError("cannot load module more than once per process") from None
enter("probe")
"""
AT_STAKE = """
interruptions.SOON = 0.05
def work():
    with at_stake():
        try:
            ready()
        finally:
            time.sleep(0.5)
            print("saved")
enter("probe")
"""
WITHIN_A_FINALIZER = """
interruptions.SOON = 0.05
class Finalizer:
    def __del__(self):
        ready()
@at_stake()
def work():
    try:
        Finalizer()  # gone at once
        time.sleep(60)
    finally:
        time.sleep(0.5)
enter("probe")
"""
ASKED_THREE_TIMES = """
interruptions.AT_ONCE = -1.0
@at_stake()
def work():
    try:
        ready()
    finally:
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        time.sleep(60)
enter("probe")
"""
RECORDS = """
interruptions.SOON = 0.05
@at_stake()
def work():
    with open(sys.argv[1], "w") as file:
        try:
            ready()
        finally:
            time.sleep(0.5)
"""
A_THREAD_THAT_STAYS = """
def work():
    threading.Thread(target=time.sleep, args=(60,)).start()
    with at_stake():
        try:
            exec("ready()")  # Python notes it if the exception leaves a module, and would end by SIGINT itself
        except KeyboardInterrupt:
            return 7
enter("probe")
"""


def begun(program: str, *words: str, stderr: int | None = subprocess.PIPE) -> subprocess.Popen[str]:
    """A process that is ready; with None, it has no stderr at all."""
    command = [sys.executable, "-c", COMMAND + program, *words]
    if stderr is None:
        command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    process = subprocess.Popen(command, cwd=ROOT, stdout=-1, stderr=stderr, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def signalled(program: str, number: int) -> tuple[int, list[str], list[str]]:
    process = begun(program)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    return process.returncode, out.splitlines(), err.splitlines()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_while_nothing_is_at_stake_a_command_leaves_at_once(number: int) -> None:
    code, out, err = signalled(WITHIN_AN_IMPORT, number)
    assert (code, out, err) == (128 + number, ["last step"], ["interrupted; continue: this way"])


def test_what_is_at_stake_is_saved_and_if_it_takes_long_that_is_said_soon() -> None:
    code, out, err = signalled(AT_STAKE, signal.SIGTERM)
    assert (code, out) == (143, ["saved", "goodbye"])
    assert err == ["interrupted; saving ...", "interrupted; continue: this way"]


def test_a_command_ends_with_its_own_code_whatever_threads_and_modules_were_interrupted() -> None:
    assert signalled(A_THREAD_THAT_STAYS, signal.SIGINT) == (7, ["goodbye"], [])


def test_that_saving_takes_long_is_said_once_even_if_the_signal_came_within_a_finalizer() -> None:
    code, _, err = signalled(WITHIN_A_FINALIZER, signal.SIGTERM)
    assert (code, err) == (143, ["interrupted; saving ...", "interrupted; continue: this way"])


def closed_terminal(program: str) -> subprocess.Popen[str]:
    terminal, end = pty.openpty()
    process = begun(program, stderr=end)
    os.close(end)
    os.close(terminal)
    return process


@pytest.mark.parametrize("start", [closed_terminal, lambda program: begun(program, stderr=None)], ids=["pty", "none"])
@pytest.mark.parametrize("program", [WITHIN_AN_IMPORT, AT_STAKE, ASKED_THREE_TIMES], ids=["at once", "saved", "third"])
def test_a_command_that_can_t_print_ends_with_the_signal_s_code(
    program: str, start: Callable[[str], subprocess.Popen[str]]
) -> None:
    process = start(program)
    process.send_signal(signal.SIGHUP)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 129
    assert ("saved" in out) == (program is AT_STAKE)


@pytest.mark.parametrize("last", ['enter("probe")', "sys.exit(main())"])
def test_without_stderr_nothing_is_written_to_a_file_that_has_its_number(last: str, tmp_path: Path) -> None:
    process = begun(RECORDS + last, str(tmp_path / "records"), stderr=None)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert (process.returncode, (tmp_path / "records").read_text()) == (143, "")


class Finalizer:
    def __init__(self, do: Callable[[], None]) -> None:
        self.do = do

    def __del__(self) -> None:
        self.do()


def test_a_wish_that_comes_within_a_finalizer_is_not_lost(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        with at_stake():
            Finalizer(lambda: signal.raise_signal(signal.SIGTERM))  # gone at once
            time.sleep(30)
        raise AssertionError("the signal was lost")

    assert guarded(work, lambda: "") == 143
    assert capsys.readouterr().err == "interrupted\n"


def test_a_process_that_is_not_a_command_s_own_is_never_left() -> None:
    assert (interruptions.stakes, interruptions.hints) == ([], [])
    with interruptible(Interruptions()), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGHUP)


def test_deferred_signals_are_heard_at_the_end_and_once() -> None:
    done = []

    def work() -> None:
        with deferred() as asked, at_stake():
            assert not asked()
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGINT)
            assert asked()
            done.append("started")
        done.append("went on")

    handler = Interruptions()
    with interruptible(handler), pytest.raises(KeyboardInterrupt):
        work()
    assert (done, handler.number, handler.count) == (["started"], signal.SIGHUP, 2)


def test_a_notebook_that_asks_again_a_second_later_need_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(interruptions.time, "monotonic", lambda: now[0])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background

    def work() -> None:
        with deferred():
            signal.raise_signal(signal.SIGINT)
            now[0] = 1.5
            with suppress(ZeroDivisionError):
                signal.raise_signal(signal.SIGINT)
            raise AssertionError("it had to wait")

    try:
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        signal.signal(signal.SIGINT, before)


def in_c(number: int) -> None:
    """Change what a signal does as a library in C does it: Python does not notice."""
    import ctypes

    ctypes.CDLL(None).signal(number, ctypes.c_void_p(0))


def test_a_handler_that_c_has_taken_away_is_put_back() -> None:
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with handlers_without("ray"):
            in_c(signal.SIGTERM)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)  # would end this process
        with held_back(signal.SIGTERM):
            in_c(signal.SIGTERM)
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            assert heard == [signal.SIGTERM]
        assert heard == [signal.SIGTERM] * 2
    finally:
        signal.signal(signal.SIGTERM, before)


def test_processes_that_start_while_a_signal_is_held_back_receive_it() -> None:
    with held_back(signal.SIGTERM):
        pid = os.fork()
        if not pid:
            os._exit(int(signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, [])))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
