"""Fix the columns of a feed of trades and quotes, made or real. `docs/market-feed.md` explains each."""

import pyarrow as pa

FEED_SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", tz="UTC")),
        pa.field("ticker", pa.string()),
        pa.field("kind", pa.string()),  # 'trade' or 'quote'
        pa.field("price", pa.float64()),  # of the trade, or the ask of the quote
        pa.field("size", pa.int64()),  # shares traded, or lots asked
        pa.field("bid", pa.float64()),  # null for a trade
        pa.field("bid_size", pa.int64()),  # null for a trade
    ]
)
