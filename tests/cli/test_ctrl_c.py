"""Ctrl-C asks at a terminal, and is a request to end elsewhere."""

from __future__ import annotations

import os
import pty
import signal
import sys
from collections.abc import Iterator
from typing import IO

import pytest

from riprap.cli.ctrl_c import CtrlC
from riprap.cli.screen import Screen


@pytest.fixture
def terminal() -> Iterator[tuple[int, IO[str]]]:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as typed:
        yield ours, typed
    os.close(ours)


@pytest.mark.parametrize(
    ("typed", "stop"), [("r\n", "resume"), ("e\n", "end"), ("\n", "end"), ("c\n", None), ("x\n", None)]
)
def test_at_a_terminal_it_asks(
    terminal: tuple[int, IO[str]], monkeypatch: pytest.MonkeyPatch, typed: str, stop: str | None
) -> None:
    hand, answers = terminal
    screen = Screen()
    monkeypatch.setattr(type(screen.err), "is_terminal", True)
    with CtrlC(screen, answers) as asked:
        os.kill(os.getpid(), signal.SIGINT)
        assert (asked.asking, asked.stop) == (True, None)
        asked.look()
        assert asked.asking, "the run goes on until there is an answer"
        os.write(hand, typed.encode())
        while asked.asking:
            asked.look()
        assert asked.stop == stop


def test_elsewhere_it_is_a_request_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    with open(os.devnull) as nothing, CtrlC(Screen(), nothing) as asked:
        os.kill(os.getpid(), signal.SIGINT)
        assert (asked.asking, asked.stop) == (False, "end")
    assert "stopping ... (Ctrl-C again" in capsys.readouterr().err
    assert sys.stdin is not None
