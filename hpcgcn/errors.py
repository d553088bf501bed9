"""The errors a user can meet: each says what is wrong, where, and how to fix it."""

# Launchers drop what a rank wrote just before the job ends with an error: a message gets this long
# to arrive.
LAUNCHER_SECONDS = 0.3
MOST_MESSAGE = 1500        # characters


def printable(text: object, most: int | None = None) -> str:
    """Text of a file, for a terminal: on one line, without characters that it obeys instead of
    showing them.

    Of more than `most` characters the middle is left out: what is wrong is at the beginning, what
    helps at the end.
    """
    text = str(text)
    if most is not None and len(text) > most:
        text = f"{text[:most * 2 // 3]} ... {text[len(text) - most // 3:]}"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class HpcgcnError(Exception):
    """An error of the user, or a limit here: printed once, without a traceback, exit code 2."""

    def __init__(self, message: object = ""):
        super().__init__(printable(message, MOST_MESSAGE))

    exit_code = 2
    # True once all ranks raise it together; an error of one rank alone must end the others too
    agreed = False


class ConfigError(HpcgcnError):
    """A setting that is unknown, out of range, or does not go with another."""


class FileError(HpcgcnError):
    """A file that is missing, damaged, of another kind, or written for another purpose."""


class GraphError(HpcgcnError):
    """A graph that cannot be used as it is: indices out of range, NaN, no training nodes."""


class DivergedError(HpcgcnError):
    """Training produced a loss that is not a number."""

    agreed = True            # the loss is summed over the ranks before it is checked


class BackendError(HpcgcnError):
    """A backend that cannot run here: no compiler at install, no GPU, not enough memory."""


class CheckpointError(HpcgcnError):
    """A checkpoint that is missing, damaged or does not fit the model."""
