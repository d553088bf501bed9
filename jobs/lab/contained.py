"""Run a function as the first process of namespaces of its own: when it ends, all that it started
ends with it.

The first process of a process namespace is its init. Whatever ends it (its own end, a crash,
SIGKILL to the process outside), the kernel kills all others in the namespace, and what exists only
there, such as links and mounts, goes too.
"""

import ctypes
import os
import shlex
import signal
import subprocess
import sys

NEW_MOUNTS, NEW_NAMES, NEW_IPC, NEW_PROCESSES, NEW_NETWORK = (0x20000, 0x4000000, 0x8000000,
                                                              0x20000000, 0x40000000)
SET_PARENT_DEATH_SIGNAL = 1
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
GRACE_SECONDS = 15


class LabError(Exception):
    """Something the user can fix."""


def system_call(name, *args):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*args):
        error = ctypes.get_errno()
        raise LabError(f"the system refused {name}: {os.strerror(error)}; inside a container "
                       "this needs --privileged")


def run(*command):
    """Run a command of the set-up; what it says is the error's message."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise LabError(f"'{shlex.join(command)}' failed: {done.stdout.strip()}")


class Signals:
    """Signals to the lab: before its command runs they end the lab, then they are handed on to the
    command."""

    def __init__(self):
        self.command = self.ended_by = None
        for number in FORWARDED:
            signal.signal(number, self._handle)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)

    def _handle(self, number, frame):
        if self.command is None:
            sys.exit(128 + number)
        if number in (signal.SIGUSR1, signal.SIGUSR2):
            os.kill(self.command, number)
            return
        self.ended_by = number
        os.kill(self.command, signal.SIGTERM)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(self.command, signal.SIGKILL))
        signal.alarm(GRACE_SECONDS)

    def run(self, command):
        """Run the lab's command and return its exit code."""
        self.command = subprocess.Popen(command).pid
        ended = None
        while ended != self.command:         # an init also takes in what others leave behind
            ended, status = os.wait()
        if self.ended_by:
            return 128 + self.ended_by
        return exit_code(status)


def exit_code(status):
    """As a shell would say it."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def start(function, namespaces):
    """Run function(signals) -> exit code in namespaces of its own; hand signals on to it; return
    its exit code."""
    system_call("unshare", NEW_PROCESSES | NEW_MOUNTS | namespaces)
    # A signal that comes before the lab listens must wait: an init without a handler never gets it.
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    lab = os.fork()
    if lab == 0:
        system_call("prctl", SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        os.setsid()  # Ctrl-C reaches the outer process alone, which hands it on once
        sys.exit(_guarded(function))
    for number in FORWARDED:
        signal.signal(number, lambda number, frame: os.kill(lab, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    _, status = os.waitpid(lab, 0)
    return exit_code(status)


def _guarded(function):
    try:
        signals = Signals()
        run("mount", "--make-rprivate", "/")
        run("mount", "-t", "proc", "proc", "/proc")
        return function(signals)
    except LabError as error:
        return complain(error)


def complain(error):
    """Tell the user, and return the exit code of a user's error."""
    print(f"jobs/lab/{os.path.basename(sys.argv[0])}: {error}", file=sys.stderr, flush=True)
    return 2
