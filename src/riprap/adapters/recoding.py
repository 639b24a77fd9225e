"""Text in another encoding, as the UTF-8 that everything here reads."""

from __future__ import annotations

import codecs

from riprap.adapters.framing import ByteStream
from riprap.errors import RunError

_AS_SURROGATES = "riprap-as-surrogates"


def recoded(stream: ByteStream, encoding: str, file: str) -> ByteStream:
    """Return a stream of UTF-8."""
    return stream if encoding in ("utf-8", "ascii") else _Recoded(stream, encoding, file)


class _Recoded:
    """Bytes that stand for no character become bytes that are no UTF-8, so that their records are found to be bad."""

    def __init__(self, stream: ByteStream, encoding: str, file: str) -> None:
        self._stream, self._encoding, self._file = stream, encoding, file
        self._decoder = codecs.getincrementaldecoder(encoding)(errors=_AS_SURROGATES)
        self._left = b""
        self._ended = False

    def read(self, size: int, /) -> bytes:
        while len(self._left) < size and not self._ended:
            chunk = self._stream.read(size)
            self._ended = not chunk
            try:
                text = self._decoder.decode(chunk, final=self._ended)
            except UnicodeError as error:
                raise RunError(
                    f"file {self._file} cannot be read as encoding='{self._encoding}': {error}. The encodings UTF-16LE "
                    "and UTF-16BE need no byte order mark"
                ) from error
            self._left += text.encode("utf-8", "surrogatepass")
        data, self._left = self._left[:size], self._left[size:]
        return data


def _as_surrogates(error: UnicodeError) -> tuple[str, int]:
    """Stand in for "surrogateescape", which takes no bytes below 0x80 and so no half characters of UTF-16."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(chr(0xDC00 | byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_AS_SURROGATES, _as_surrogates)
