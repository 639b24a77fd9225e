"""Values in Redis: an entry is a hash of heads, a chunk is a string of its own.

    <prefix>:entries                            set of the entries there have been
    <prefix>:entry:<entry>                      hash: key -> head
    <prefix>:chunk:<entry>:<key>:<stamp>:<n>    a chunk

Chunks go first, with a time to live, so those of a writer that died go by themselves. Then one transaction makes them
stay, writes the heads, and removes the chunks of the values that are replaced.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from riprap.errors import CorruptValueError, FormatError, StoreError
from riprap.state.stores.base import Buffer, Store, check_entry, check_keys
from riprap.state.stores.chunks import Head, read_value

DEFAULT_CHUNK = 16 << 20
DEFAULT_PREFIX = "riprap"
_LARGEST_CHUNK = 512 << 20
_UNFINISHED_SECONDS = 24 * 3600
# How much is on its way before its answers are read.
_IN_FLIGHT = 32 << 20
_CONNECT_SECONDS = 3
_ANSWER_SECONDS = 15


class RedisStore(Store):
    """A store in a Redis server. It connects when it is first used, and again when the server was away."""

    def __init__(
        self,
        url: str,
        where: str,
        server: str,
        *,
        prefix: str = DEFAULT_PREFIX,
        chunk: int = DEFAULT_CHUNK,
    ) -> None:
        if not 1 <= chunk <= _LARGEST_CHUNK:
            raise StoreError(
                f"store {where}: a chunk of {chunk:,} bytes; Redis takes 1 to {_LARGEST_CHUNK:,}"
            )
        self.url = url
        self._where = where
        self._prefix = prefix
        self._chunk = chunk
        self._client = _client(server, where)

    def put(self, entry: str, values: Mapping[str, Buffer]) -> None:
        check_entry(entry)
        keys = check_keys(values)
        if not values:
            return
        heads = {key: Head.of(value, self._chunk) for key, value in values.items()}
        names = [f"{self._of(entry)}{name}" for key, head in heads.items() for name in head.names(key)]
        with self._our_errors("writing"):
            replaced = self._chunks_of(entry, keys)
            try:
                self._send_chunks(names, (part for key in keys for part in heads[key].cut(values[key])))
                transaction = self._client.pipeline(transaction=True)
                for name in names:
                    transaction.persist(name)
                transaction.hset(
                    self._heads(entry), mapping={key: head.encode() for key, head in heads.items()}
                )
                transaction.sadd(self._entries, entry)
                if replaced:
                    transaction.unlink(*replaced)
                kept = transaction.execute()[: len(names)]
            except Exception:
                # They would go by themselves, but a full server needs the room now. Not those of heads that are in
                # place: what was lost may have been the answer alone.
                with contextlib.suppress(Exception):
                    in_place = set(self._chunks_of(entry, keys))
                    self._client.unlink(*(name for name in names if name not in in_place))
                raise
            # A transaction that was sent again finds them persistent already.
            kept = kept if all(kept) else [self._client.exists(name) for name in names]
        if not all(kept):
            raise StoreError(
                f"store {self._where}: the server evicted a value while it was written. Give it more memory, and "
                "the policy noeviction (maxmemory-policy)"
            )

    def get(self, entry: str, key: str) -> pa.Buffer:
        check_entry(entry)
        check_keys([key])

        def chunks(names: list[str]) -> Sequence[bytes | None]:
            pipe = self._client.pipeline(transaction=False)
            for name in names:
                pipe.get(f"{self._of(entry)}{name}")
            return pipe.execute()  # type: ignore[no-any-return]

        with self._our_errors("reading"):
            where = f"store {self._where}: '{key}' of entry '{entry}'"
            return read_value(key, where, lambda: self._client.hget(self._heads(entry), key), chunks)

    def keys(self, entry: str) -> list[str]:
        check_entry(entry)
        with self._our_errors("reading"):
            return sorted(key.decode() for key in self._client.hkeys(self._heads(entry)))

    def damage(self, entry: str) -> list[str]:
        # A key is there whatever became of its value.
        return []

    def delete(self, entry: str, keys: Iterable[str]) -> None:
        check_entry(entry)
        unwanted = check_keys(keys)
        if not unwanted:
            return
        with self._our_errors("deleting"):
            chunks = self._chunks_of(entry, unwanted)
            transaction = self._client.pipeline(transaction=True)
            transaction.hdel(self._heads(entry), *unwanted)
            if chunks:
                transaction.unlink(*chunks)
            transaction.execute()

    def entries(self) -> list[str]:
        with self._our_errors("reading"):
            names = sorted(entry.decode() for entry in self._client.smembers(self._entries))
            pipe = self._client.pipeline(transaction=False)
            for entry in names:
                pipe.exists(self._heads(entry))
            return [entry for entry, exists in zip(names, pipe.execute(), strict=True) if exists]

    def drop(self, entry: str) -> None:
        check_entry(entry)
        with self._our_errors("deleting"):
            transaction = self._client.pipeline(transaction=True)
            transaction.unlink(self._heads(entry))
            transaction.srem(self._entries, entry)
            transaction.execute()
            # By name and not by head: those whose head is damaged or gone are found too.
            pattern = re.sub(r"([*?\[\]\\])", r"\\\1", self._of(entry)) + "*"
            pipe = self._client.pipeline(transaction=False)
            for name in self._client.scan_iter(match=pattern, count=10_000):
                pipe.unlink(name)
            pipe.execute()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._client.close()

    def _send_chunks(self, names: Sequence[str], parts: Iterator[memoryview]) -> None:
        """Write chunks that go by themselves unless they are made to stay."""
        pipe, size = self._client.pipeline(transaction=False), 0
        for name, part in zip(names, parts, strict=True):
            pipe.set(name, part, ex=_UNFINISHED_SECONDS)
            size += len(part)
            if size >= _IN_FLIGHT:
                pipe.execute()
                size = 0
        pipe.execute()

    def _chunks_of(self, entry: str, keys: Sequence[str]) -> list[str]:
        """Return the names of the chunks that are there under some keys."""
        names: list[str] = []
        for key, data in zip(keys, self._client.hmget(self._heads(entry), keys), strict=True):
            # Of a head that cannot be read the chunks are not known; it can be replaced all the same.
            with contextlib.suppress(CorruptValueError, FormatError):
                names += Head.decode(data, key).names(key) if data is not None else []
        return [f"{self._of(entry)}{name}" for name in names]

    @property
    def _entries(self) -> str:
        return f"{self._prefix}:entries"

    def _heads(self, entry: str) -> str:
        return f"{self._prefix}:entry:{entry}"

    def _of(self, entry: str) -> str:
        return f"{self._prefix}:chunk:{entry}:"

    @contextlib.contextmanager
    def _our_errors(self, doing: str) -> Iterator[None]:
        """Turn the client's errors into ours."""
        import redis.exceptions as theirs

        try:
            yield
        except theirs.AuthenticationError as error:
            hint = "Give user and password in the URL: redis://user:password@host:port/0"
            raise StoreError(f"store {self._where}: {doing} refused: {error}. {hint}") from error
        except (theirs.ConnectionError, theirs.TimeoutError) as error:
            hint = "See whether the server runs and can be reached from here"
            raise StoreError(f"store {self._where}: {doing} failed: {error}. {hint}") from error
        except theirs.RedisError as error:
            raise StoreError(f"store {self._where}: {doing} refused: {error}. {_hint(str(error))}") from error


def _hint(answer: str) -> str:
    if "OOM" in answer or "maxmemory" in answer:
        return "Give the server more memory (maxmemory), or keep fewer checkpoints"
    if "READONLY" in answer or "read only" in answer:
        return "This is a replica: name the primary"
    if "MISCONF" in answer:
        return "The server cannot write to its own disk: see its log"
    return "See the server's log"


def _client(server: str, where: str) -> Any:
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise StoreError(f"store {where}: Redis needs its client: pip install 'riprap[redis]'") from error
    # One more attempt: a connection that the server closed while nobody used it is no failure.
    retry = Retry(NoBackoff(), 1, supported_errors=(redis.exceptions.ConnectionError,))
    try:
        return redis.Redis.from_url(
            server, retry=retry, socket_connect_timeout=_CONNECT_SECONDS, socket_timeout=_ANSWER_SECONDS
        )
    except ValueError as error:
        raise StoreError(f"store {where}: {error}. Give redis://host:port/0") from error
