"""The caching allocator once more, as simple as can be: segments are lists of [size, block], searched from end to end."""

from __future__ import annotations

MIB = 1 << 20


class PlainAllocator:
    """Every rule of the default settings, one line each, without any index."""

    def __init__(self):
        self.segments = []  # (is small, [[size, block or None], ...]) in order of address
        self.sizes = {}

    def allocate(self, block, nbytes):
        size = (nbytes + 511) // 512 * 512
        small = size <= MIB
        holes = [
            (piece[0], number, at)
            for number, (is_small, pieces) in enumerate(self.segments)
            for at, piece in enumerate(pieces)
            if is_small == small and piece[1] is None and piece[0] >= size
        ]
        if holes:
            _, number, at = min(holes)
        else:
            number, at = len(self.segments), 0
            whole = (
                2 * MIB
                if small
                else 20 * MIB
                if size < 10 * MIB
                else (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
            )
            self.segments.append((small, [[whole, None]]))
        pieces = self.segments[number][1]
        rest = pieces[at][0] - size
        if rest >= 512 if small else rest > MIB:
            pieces[at : at + 1] = [[size, block], [rest, None]]
        else:
            pieces[at][1] = block
        self.sizes[block] = nbytes

    def free(self, block):
        del self.sizes[block]
        for _, pieces in self.segments:
            for piece in pieces:
                if piece[1] == block:
                    piece[1] = None
            at = 0
            while at + 1 < len(pieces):
                if pieces[at][1] is None and pieces[at + 1][1] is None:
                    pieces[at][0] += pieces.pop(at + 1)[0]
                else:
                    at += 1

    def bytes(self):
        pieces = [piece for _, pieces in self.segments for piece in pieces]
        reserved = sum(size for size, _ in pieces)
        return reserved, sum(size for size, block in pieces if block is not None), sum(self.sizes.values())
