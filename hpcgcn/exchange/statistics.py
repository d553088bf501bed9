"""What an exchange cost."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass
class Statistics:
    """Counted since the last reset."""

    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_network: int = 0           # of bytes_sent, those to ranks of other hosts
    bytes_parameters: int = 0        # of bytes_sent, those of quantisation scales and offsets
    bytes_uncompressed: int = 0      # what would have been sent without a codec
    wait_seconds: float = 0.0        # for messages to arrive and to be sent
    pack_seconds: float = 0.0        # coding
    unpack_seconds: float = 0.0      # decoding
    flight_seconds: float = 0.0      # from the start of messages to the end of the wait for them
    uses: int = 0
    stale_uses: int = 0              # of them, those of an earlier epoch's rows

    def count_message(self, sent: int, received: int, parameters: int, uncompressed: int,
                      same_host: bool = False):
        """Messages to and from one peer; same_host: it shares this rank's memory."""
        self.bytes_network += 0 if same_host else sent
        self.bytes_sent += sent
        self.bytes_received += received
        self.bytes_parameters += parameters
        self.bytes_uncompressed += uncompressed

    def count_use(self, stale: bool):
        """An epoch used rows of this exchange."""
        self.uses += 1
        self.stale_uses += stale

    def reset(self):
        """Begin anew."""
        for field in fields(self):
            setattr(self, field.name, field.default)
