"""The command line: ``riprap demo``, ``run``, ``kill`` and others, each a module of two functions.

Exit codes: 0 all went well, 1 the run failed, 2 the command or the application is wrong, 130 Ctrl-C.
Results go to stdout; progress and errors go to stderr. With ``--json`` there is always one object on stdout; of what
went wrong it is ``{"error": "GraphError", "message": "...", "exit_code": 2}``.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

from riprap.cli import (
    bench,
    demo,
    explain,
    fit,
    inject,
    kill,
    model,
    operators,
    profile,
    replicas,
    report,
    reset,
    run,
    state,
    stop,
)
from riprap.cli.applications import UsageError
from riprap.cli.screen import Screen
from riprap.errors import GraphError, ModelError, NotYetError, RiprapError

__all__ = ["main"]

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

_EXAMPLES = """\
examples:
  riprap demo                                        a feed, Bargain Discovery on Spark, the best bargains
  riprap run bargain --feed market/ --out bargains/  the same application on a feed of your own
  riprap run app.py:app                              an application of your own, written in app.py
  riprap stop latest                                 stop a run, to be taken up again
  riprap reset latest REGION                         bring back a region of a run that is halted
  riprap kill latest PE                              crash a part of a run, and see it come back
  riprap replicas                                    the replicas of the newest run, and who is active
  riprap state list latest                           the checkpoints of the newest run
  riprap inject bargain --quick                      which of its operators are critical, by injected faults
  riprap model bargain --paper --fault-rate 90m      how available it is, and how much of its output is tainted
  riprap profile bargain                             what each operator takes and keeps, for its model
  riprap explain bargain                             its graph and what the compiler makes of it
  riprap operators                                   what there is to build with
  riprap bench                                       the benchmarks there are

'riprap COMMAND --help' says more about a command.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    command = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = _parser().parse_args(command)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else USAGE
    except UsageError as error:
        return _explain_failure(error, Screen(json="--json" in command), debug=False)
    screen = Screen(json=arguments.json, quiet=arguments.quiet, command=command)
    try:
        with screen.guard_stdout():
            code: int = arguments.execute(arguments, screen)
            sys.stdout.flush()
            return code
    except KeyboardInterrupt:
        screen.note("stopped")
        screen.fail("KeyboardInterrupt", "stopped", INTERRUPTED)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has seen enough. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return OK
    except Exception as error:
        if arguments.debug:
            traceback.print_exc()
        return _explain_failure(error, screen, debug=arguments.debug)


def _explain_failure(error: Exception, screen: Screen, *, debug: bool) -> int:
    wrong = isinstance(error, UsageError | GraphError | ModelError | NotYetError)
    code = USAGE if wrong else FAILED
    if isinstance(error, RiprapError):
        screen.error(str(error))
    else:
        hint = "" if debug else " (--debug shows where)"
        screen.error(f"{type(error).__name__}: {error}{hint}")
    screen.fail(type(error).__name__, str(error), code)
    return code


class _Parser(argparse.ArgumentParser):
    """A parser that raises what is wrong with a command, so that it is told as any other failure."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        raise UsageError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="riprap",
        description="Streaming applications on Spark, every part protected as much as it deserves.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"riprap {version('riprap')}")
    common = _Parser(add_help=False)
    common.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else on stdout"
    )
    common.add_argument("--quiet", action="store_true", help="show no progress")
    common.add_argument("--debug", action="store_true", help="show the Python traceback of a failure")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    modules = {
        "demo": demo,
        "run": run,
        "stop": stop,
        "reset": reset,
        "kill": kill,
        "replicas": replicas,
        "state": state,
        "inject": inject,
        "report": report,
        "profile": profile,
        "fit": fit,
        "model": model,
        "explain": explain,
        "operators": operators,
        "bench": bench,
    }
    for name, module in modules.items():
        command = commands.add_parser(
            name,
            parents=[common],
            help=module.SUMMARY,
            description=module.__doc__,
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(execute=module.execute)
    return parser
