"""The commands, put together; errors of ours become one line and an exit code."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated

import typer

from tacit._version import __version__
from tacit.cli import (
    adapt,
    audit,
    compare,
    demo,
    encode,
    federate,
    fit,
    hand_out,
    ledger,
    plan,
    predict,
    ranges,
    report,
    reproduce,
    verify,
)
from tacit.cli.output import stop, warn

app = typer.Typer(
    name="tacit",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        print(f"tacit {__version__}")
        raise typer.Exit


@app.callback()
def _whole(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Learn together without telling: privacy-preserving multi-task learning."""


app.command(epilog=demo.EXAMPLES)(demo.demo)
app.command(epilog=plan.EXAMPLES)(plan.plan)
app.command(epilog=ranges.EXAMPLES)(ranges.ranges)
app.command(epilog=fit.EXAMPLES)(fit.fit)
app.command(epilog=predict.EXAMPLES)(predict.predict)
app.command(epilog=report.EXAMPLES)(report.report)
app.command(epilog=compare.EXAMPLES)(compare.compare)
app.command(epilog=hand_out.EXAMPLES)(hand_out.hand_out)
app.command(epilog=adapt.EXAMPLES)(adapt.adapt)
app.command(epilog=verify.EXAMPLES)(verify.verify)
app.command(epilog=audit.EXAMPLES)(audit.audit)
app.command(epilog=reproduce.EXAMPLES)(reproduce.reproduce)

ledger_app = typer.Typer(help="What was spent, on whom, and whether the record is intact.")
ledger_app.command("show", epilog=ledger.SHOW_EXAMPLES)(ledger.show)
ledger_app.command("plan", epilog=ledger.PLAN_EXAMPLES)(ledger.plan)
ledger_app.command("verify", epilog=ledger.VERIFY_EXAMPLES)(ledger.verify)
app.add_typer(ledger_app, name="ledger", no_args_is_help=True)

encode_app = typer.Typer(help="Reports of people who trust nobody: design, report, decode.")
encode_app.command("fit", epilog=encode.FIT_EXAMPLES)(encode.fit)
encode_app.command("run", epilog=encode.RUN_EXAMPLES)(encode.run)
encode_app.command("decode", epilog=encode.DECODE_EXAMPLES)(encode.decode)
app.add_typer(encode_app, name="encode", no_args_is_help=True)

federate_app = typer.Typer(help="The learners where the data are: sites and a coordinator.")
federate_app.command("init", epilog=federate.INIT_EXAMPLES)(federate.init)
federate_app.command("up", epilog=federate.UP_EXAMPLES)(federate.up)
federate_app.command("status", epilog=federate.STATUS_EXAMPLES)(federate.status)
app.add_typer(federate_app, name="federate", no_args_is_help=True)

USAGE = typer.BadParameter.__mro__[2]  # click's own error, wherever typer keeps click


def run() -> None:
    """Exit codes: 1 a negative verdict, 2 bad input, 3 budget refused, 130 interrupted."""
    from tacit.errors import BudgetExceeded, TacitError

    as_json = "--json" in sys.argv
    warnings.showwarning = lambda message, *_, **__: warn([str(message)])
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except BudgetExceeded as error:
        stop(error, 3, as_json=as_json, left=error.left)
    except BrokenPipeError:  # the reader has seen enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 for the flush at exit
        sys.exit(1)
    except (TacitError, OSError) as error:
        stop(error, 2, as_json=as_json)
    except typer.Abort:
        sys.exit(130)
    except Exception as error:
        if not isinstance(error, USAGE):
            raise
        told: str = error.format_message()  # type: ignore[attr-defined] # USAGE has it
        if not told:  # help was asked for by saying nothing, and printed
            sys.exit(2)
        stop(told, 2, as_json=as_json)
    else:
        sys.exit(code or 0)
