"""What compute-sanitizer printed, as reports, and which of them are known not to be ours.

UCX and Open MPI ask the driver of every pointer whether it is device memory. For host memory the
driver answers with an error, which they expect and which the sanitizer reports all the same.
"""

from __future__ import annotations

import re

PREFIX = "========="
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
_QUESTIONS = re.compile(r"on CUDA API call to cu(PointerGetAttributes?|Mem(RetainAllocationHandle|"
                        r"GetAddressRange)|CtxGetDevice|IpcOpenMemHandle)\b")
_ASKERS = re.compile(r"\b(libuc[tpsm]\w*|libopen-pal|libmpi|libopal|libfabric|mca_accelerator)")
_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard")


def reports(printed: str) -> list[str]:
    """The sanitizer's reports: runs of its lines, cut where it leaves a line empty."""
    found, current = [], []
    for line in [*printed.splitlines(), PREFIX]:
        if not line.startswith(PREFIX):
            continue                             # what the program prints in between
        text = line[len(PREFIX):].rstrip()
        if text.strip():
            current.append(text)
        elif current:
            found.append("\n".join(current))
            current = []
    return [report for report in found if not _is_frame(report)]


def _is_frame(report: str) -> bool:
    """The lines at the start and the end that report nothing."""
    lines = [line.strip() for line in report.splitlines()]
    return all(line.startswith(("COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY",
                                "LEAK SUMMARY", "Target application returned"))
               for line in lines)


def is_noise(report: str) -> bool:
    """A question about a pointer, asked by the library of MPI below it."""
    return bool(_QUESTIONS.search(report) and _ASKERS.search(report))


def finished(printed: str) -> bool:
    """Did the sanitizer get to its summary? One that could not start prints none."""
    return bool(_SUMMARY.search(printed))


def split(printed: str) -> tuple[list[str], int]:
    """(reports that count, number of known noise)."""
    all_of_them = reports(printed)
    ours = [report for report in all_of_them if not is_noise(report)]
    return ours, len(all_of_them) - len(ours)
