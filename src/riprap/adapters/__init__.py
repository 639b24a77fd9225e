"""How Riprap talks to the outside world: bytes and messages in, rows out, and nothing lost in between."""
