"""Write a file of JSON whole, or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def save_json(path: Path, data: Mapping[str, Any], *, indent: int | None = None) -> None:
    """Write a JSON file, or replace it: whoever reads it, or dies writing it, leaves one that is whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(data, indent=indent) + "\n")
    temporary.rename(path)
