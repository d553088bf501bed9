"""From rows to messages and back, for all routes of one exchange: codec, rate, feedback."""

from __future__ import annotations

from hpcgcn.exchange.codec import Draw
from hpcgcn.exchange.coding import DirectCoding, ErrorFeedback, ResidualCoding
from hpcgcn.exchange.triggered import TriggeredCoding
from hpcgcn.exchange.types import Policy, Route


class Compressor:
    """Codes the messages of one epoch at a time: `begin`, encode and, perhaps later, decode."""

    def __init__(self, backend, policy: Policy, routes: list[Route], width: int, *,
                 seed: int, layer: int):
        """width: of rows whose route gives no other."""
        self.backend, self.policy, self.codec, self.width = backend, policy, policy.codec, width
        self.seed, self.layer = seed, layer
        self.epoch, self.rate = 0, 0.0
        self.retarget(routes)
        shapes = [(len(r.outgoing), self.widths(k)[0]) for k, r in enumerate(routes)]
        self.coding = self._coding(shapes)
        # Codecs read whole rows: some columns of longer ones are packed for them first.
        packs = (not self.remembers and not self.codec.exact
                 and any(route.source_columns is not None for route in routes))
        self._packed = backend.zeros((max(n_rows * w for n_rows, w in shapes),)) if packs else None

    def _coding(self, shapes: list[tuple[int, int]]) -> DirectCoding:
        if self.policy.residual:
            elements = [len(r.incoming) * self.widths(k)[1] for k, r in enumerate(self.routes)]
            largest = max(elements, default=0)
            if self.policy.change_threshold:
                return TriggeredCoding(self.backend, self.codec, shapes, largest,
                                       self.policy.change_threshold)
            return ResidualCoding(self.backend, self.codec, shapes, largest)
        if self.policy.error_feedback:
            return ErrorFeedback(self.backend, self.codec, shapes)
        return DirectCoding(self.backend, self.codec)

    def retarget(self, routes: list[Route]):
        """From now on other rows; for codings without a memory."""
        self.routes = routes

    def widths(self, k: int) -> tuple[int, int]:
        """Of the rows to and from a peer."""
        route = self.routes[k]
        return (self.width if route.out_width is None else route.out_width,
                self.width if route.in_width is None else route.in_width)

    def begin(self, epoch: int):
        """The messages of an epoch; those of the last one have been decoded."""
        self.epoch, self.rate = epoch, self.policy.rate.rate(epoch)

    def _draw(self, stream: int) -> Draw:
        return Draw(self.seed, self.epoch, self.layer, stream)

    def sizes(self, k: int) -> tuple[int, int]:
        """Bytes of this epoch's messages to and from a peer; if they vary, the most of them."""
        route, (out_width, in_width) = self.routes[k], self.widths(k)
        out_draw, in_draw = self._draw(route.out_stream), self._draw(route.in_stream)
        nbytes = self.coding.nbytes
        return (nbytes(route.outgoing, out_width, self.rate, out_draw),
                nbytes(route.incoming, in_width, self.rate, in_draw))

    def overheads(self, k: int) -> tuple[int, int]:
        """Bytes of the message to a peer, once it is coded: its quantisation parameters; its rows
        uncompressed."""
        n_rows = len(self.routes[k].outgoing)
        n_coded = min(self.coding.n_coded, n_rows) if self.coding.varies else n_rows
        return (self.codec.parameter_bytes(n_coded, self.rate),
                n_rows * self.widths(k)[0] * self.backend.dtype.itemsize)

    def encode(self, k: int, x, data) -> int:
        """data = the message of route k's rows of x; returns its bytes."""
        route = self.routes[k]
        rows = x if route.source is None else x[route.source]
        if route.source_columns is not None:
            rows = self._pack(rows[:, route.source_columns])
        return self.coding.encode(k, rows, route.outgoing, self.rate,
                                  self._draw(route.out_stream), data)

    def decode(self, k: int, data, target) -> int:
        """target = the rows of the message from route k's peer; returns its bytes."""
        route = self.routes[k]
        return self.coding.decode(data, route.incoming, self.rate, self._draw(route.in_stream),
                                  target)

    def _pack(self, rows):
        """Some columns of rows, where a codec will read them next to each other."""
        if self._packed is None:
            return rows
        packed = self._packed[:rows.size].reshape(rows.shape)
        self.backend.copy(rows, packed)
        return packed

    @property
    def remembers(self) -> bool:
        """Do later messages depend on earlier ones?"""
        return bool(self.policy.error_feedback or self.policy.residual)

    def state_arrays(self) -> dict:
        """The arrays that a checkpoint must hold, by name."""
        return {f"memory_{route.peer}": rows
                for route, rows in zip(self.routes, self.coding.memory)}
