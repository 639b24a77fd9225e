"""Run the simulator's own text in the interpreter: what takes seconds to compile begins at once."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType

from riprap.san.compiled_net import module_text


@lru_cache(maxsize=16)
def interpret(functions: str) -> ModuleType:
    """Return the module that would be compiled; it takes fewer completions at once for a loop."""
    module = ModuleType("interpreted")
    text = module_text(functions).replace("AT_ONCE = 1_000_000", "AT_ONCE = 1_000")
    for decorator in ("@inner(cache=CACHED, nogil=True)", "@inner", "@inlined"):
        text = text.replace(decorator, "")
    exec(compile(text, "<interpreted>", "exec"), module.__dict__)
    return module
