"""Text in another encoding, as the UTF-8 that everything here reads."""

from __future__ import annotations

import codecs

from riprap.adapters.framing import Stream


def recoded(stream: Stream, encoding: str) -> Stream:
    """Return a stream of UTF-8."""
    return stream if encoding in ("utf-8", "ascii") else _Recoded(stream, encoding)


class _Recoded:
    """Bytes that stand for no character become bytes that are no UTF-8, so that their records are found to be bad."""

    def __init__(self, stream: Stream, encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="surrogateescape")
        self._left = b""
        self._ended = False

    def read(self, size: int, /) -> bytes:
        while len(self._left) < size and not self._ended:
            chunk = self._stream.read(size)
            self._ended = not chunk
            text = self._decoder.decode(chunk, final=self._ended)
            self._left += text.encode("utf-8", "surrogatepass")
        found, self._left = self._left[:size], self._left[size:]
        return found
