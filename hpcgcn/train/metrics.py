"""metrics.csv: one row per epoch, numbered from 1, and totals over all starts of a run."""

from __future__ import annotations

import contextlib
import csv
import os

from hpcgcn.files.atomic import atomic_file, explained
from hpcgcn.files.replace import ANY_OF_THE_RUN

COLUMNS = ("epoch", "loss", "train", "val", "test", "seconds", "wait_seconds", "bytes_sent",
           "bytes_received", "pack_seconds", "unpack_seconds", "allreduce_seconds",
           "compute_seconds", "bytes_parameters", "bytes_uncompressed", "stale_share",
           "hidden_share", "rate", "flight_seconds", "bytes_network")
_NEEDED = ("epoch", "loss", "seconds")


class MetricsFile:
    """The metrics of a run; a resumed run drops the rows after its checkpoint and goes on."""

    def __init__(self, path: str, extra_columns: list[str], epochs_done: int):
        columns, kept, self.note = _rows_up_to(path, epochs_done)
        own = [*COLUMNS, *extra_columns]
        # Bytes of an exchange that an earlier start had, on other ranks or with other settings.
        self.columns = own + [name for name in columns if name not in own]
        self.path, self._sums, self.n_rows = path, dict.fromkeys(self.columns, 0.0), 0
        with atomic_file(path, ANY_OF_THE_RUN) as temporary:
            with open(temporary, "w", encoding="utf-8", newline="") as file:
                self._writer(file).writeheader()
                for row in kept:
                    self._writer(file).writerow(row)
                    self._count(row)
        with explained(path):
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
            self.file = os.fdopen(descriptor, "w", encoding="utf-8", newline="")

    def _writer(self, file) -> csv.DictWriter:
        return csv.DictWriter(file, self.columns, restval="", extrasaction="ignore")

    def write(self, row: dict):
        """One epoch; floats with as many digits as they have."""
        row = {name: repr(v) if isinstance(v, float) else v for name, v in row.items()}
        with explained(self.path):
            self._writer(self.file).writerow(row)
            self.file.flush()
        self._count(row)

    def _count(self, row: dict):
        self.n_rows += 1
        for name in self.columns:
            self._sums[name] += _number(row.get(name)) or 0.0

    def totals(self) -> dict:
        """Seconds and bytes of all epochs, those of earlier starts among them."""
        sums, n = self._sums, max(self.n_rows, 1)
        sent, plain, flight = (sums[name] for name in
                               ("bytes_sent", "bytes_uncompressed", "flight_seconds"))
        own = [name for name in self.columns if name.startswith("bytes_") and name not in COLUMNS]
        return {"training_seconds": sums["seconds"], "seconds_per_epoch": sums["seconds"] / n,
                "bytes_sent": int(sent), "bytes_network": int(sums["bytes_network"]),
                "bytes_uncompressed": int(plain),
                "compression": plain / sent if sent else 1.0,
                "stale_share": sums["stale_share"] / n,
                "hidden_share": 1.0 - sums["wait_seconds"] / flight if flight else 0.0,
                "bytes_by_exchange": {name: int(sums[name]) for name in own}}

    def close(self):
        """No more epochs."""
        self.file.close()


def _rows_up_to(path: str, epochs_done: int) -> tuple[list[str], list[dict], str]:
    """(columns, rows of the epochs done, a note if some are missing) of an earlier start."""
    if not epochs_done:
        return [], [], ""
    columns: list[str] = []
    kept: dict[int, dict] = {}               # rows by their epoch
    with contextlib.suppress(OSError, csv.Error):        # what was read before counts
        with _open_regular(path) as file:
            reader = csv.DictReader(file)
            columns = [name for name in reader.fieldnames or [] if name.isidentifier()]
            for row in reader:
                epoch = _number(row.get("epoch"))
                whole = all(_number(row.get(name)) is not None for name in _NEEDED)
                if whole and epoch is not None and epoch in range(1, epochs_done + 1):
                    kept.setdefault(int(epoch), row)
    missing = epochs_done - len(kept)
    note = (f"{path} is damaged: the rows of {missing} of {epochs_done} epochs are lost; training "
            "does not need them, but totals lack them") if missing else ""
    return columns, [kept[epoch] for epoch in sorted(kept)], note


def _open_regular(path: str):
    """A text to read; a pipe would be waited for."""
    if not os.path.isfile(path):
        raise FileNotFoundError(path)
    return open(path, newline="", encoding="utf-8", errors="replace")


def _number(text) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if abs(value) < float("inf") else None
