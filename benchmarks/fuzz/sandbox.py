"""What a process that tries damaged files may do: little memory, no file outside its folder,
nothing on the terminal."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import tempfile

SPARE_BYTES = 3 << 30  # of address space beyond what the process has when it starts
_PR_SET_PDEATHSIG = 1
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Events of Python's audit that change what is on the disk -> how many of their first arguments are
# paths.
_CHANGES = {"os.remove": 1, "os.rename": 2, "os.mkdir": 1, "os.rmdir": 1, "os.truncate": 1,
            "os.chmod": 1, "os.chown": 1, "os.utime": 1, "shutil.rmtree": 1, "shutil.copyfile": 0,
            "shutil.move": 2}
_HARMLESS = ("/dev/null", "/proc/")


class Outside:
    """Refuses, and remembers, every attempt to change something outside of a folder."""

    def __init__(self, folder: str):
        self.folder, self.found = os.path.realpath(folder), []
        sys.addaudithook(self._watch)

    def _watch(self, event: str, arguments: tuple):
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITING and not isinstance(path, int):
                self._check(event, path)
        elif event in _CHANGES:
            for path in arguments[: _CHANGES[event]]:
                if not isinstance(path, int):
                    self._check(event, path)
        elif event in ("os.symlink", "os.link"):
            self._check(event, arguments[1])

    def _check(self, event: str, path):
        real = os.path.realpath(os.fsdecode(path))
        if (
            real != self.folder
            and not real.startswith(self.folder + os.sep)
            and not real.startswith(_HARMLESS)
        ):
            self.found.append(f"{event} {real}")
            raise PermissionError(f"{event} outside of the fuzzer's folder: {real}")


def quiet():
    """Nothing is read from or printed to where the fuzzer was started."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)


def keep_temporary_files_in(folder: str):
    """Have this process and its MPI leave nothing elsewhere: one rank needs no shared memory."""
    os.environ |= {"TMPDIR": folder, "HOME": folder, "LANGUAGE": "C", "OMPI_MCA_btl": "self",
                   "OMPI_MCA_pml": "ob1"}
    tempfile.tempdir = folder


def confine(folder: str) -> Outside:
    """Turn this process into one that tries damaged files in `folder`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the one who started it ends it
    quiet()
    os.chdir(folder)
    keep_temporary_files_in(folder)
    sys.dont_write_bytecode = True
    os.fsync = lambda descriptor: None  # what is tried here need not survive a power cut
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    limit = _status("VmSize") + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return Outside(folder)


def _status(name: str) -> int:
    """Bytes, from this process's status."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name + ":"))


def forget_peak() -> int:
    """Begin to measure the peak of resident memory anew; bytes in use now."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return _status("VmRSS")


def peak() -> int:
    """The peak of resident memory since then, in bytes."""
    return _status("VmHWM")


def tree(process: int) -> list[int]:
    """A process and those that it started, and they, by their numbers."""
    found = [process]
    for one in found:
        try:
            with open(f"/proc/{one}/task/{one}/children") as file:
                found += map(int, file.read().split())
        except OSError:
            pass  # it has ended
    return found


def seconds_waited(process: int) -> float:
    """For which a process could have gone on, but others had the cores."""
    try:
        with open(f"/proc/{process}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except OSError:
        return 0.0
