"""`logdex verify`: a check of everything at a path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdex.cli.arguments import ANY_PATH, OPEN, Command, add_options, add_source, count
from logdex.cli.output import BOLD, SHOWN_FAULTS, Progress, say, say_report
from logdex.cli.sources import open_path
from logdex.report import MEANINGS

if TYPE_CHECKING:
    import argparse

    from logdex.cli.sources.opened import Opened, Verdict
    from logdex.report import Report

_DETAILS = """\
Reads and checks everything: the log, its queues against the log, its index against both, in
both directions. docs/findings.md lists all kinds of findings. Changes nothing. The last lines
show what is lost, whether a broker starts, and the next command.

  logdex verify /data/store
  logdex verify /data/store/index --json | jq -r .kind | sort | uniq -c"""

_WIDTH = len("harmless")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, ANY_PATH)
    add_options(parser, *OPEN, "--sealed", "--wide")
    faults = f"print at most N kinds of faults in files (default: {SHOWN_FAULTS}); --json prints every fault"
    parser.add_argument("--limit", type=count, default=SHOWN_FAULTS, metavar="N", help=faults)


def _run(arguments: argparse.Namespace) -> int:
    """Print the findings and what they mean; 1 if there are any, or if a broker does not start."""
    with open_path(arguments) as opened:
        with Progress("verify") as progress:
            report = opened.verify(progress)
        return say_verified(opened, report, as_json=arguments.json, limit=arguments.limit)


def say_verified(opened: Opened, report: Report, *, as_json: bool, limit: int = SHOWN_FAULTS) -> int:
    """Print the findings of a check and what they mean; return the exit code."""
    verdict = opened.verdict(report)
    code = say_report(report, json=as_json, limit=limit, more=verdict.to_dict(report))
    is_fit = report.ok and not any(verdict.blockers.values())
    if not as_json and not is_fit:
        say()
        _say_verdict(report, verdict)
    return code if is_fit else 1


def _say_verdict(report: Report, verdict: Verdict) -> None:
    """Print what the findings mean, whether a broker starts, and the next commands."""
    worst = next(iter(report.severities), "harmless")
    is_one = verdict.lost.endswith(" 1 message")
    heads = {
        "lost": f"{verdict.lost or 'messages or records'} {'is' if is_one else 'are'} lost",
        "hidden": "nothing is lost, but a broker misses messages or answers wrongly until a repair",
        "rebuilt": "nothing is lost, and a broker repairs it when it starts",
        "harmless": "nothing is lost, and no answer of a broker is affected",
    }
    stopped = [release for release, found in verdict.blockers.items() if found]
    head = heads[worst]
    if stopped:
        lost = head if worst == "lost" else "nothing is lost"
        head = f"a broker ({', '.join(stopped)}) does not start; {lost}"
    say(f"verdict: {head}", style=BOLD)
    for severity, kinds in report.severities.items():
        counts = ", ".join(f"{number:,} {kind}" for kind, number in kinds.items())
        _say_fact(severity, f"{counts}: {MEANINGS[severity]}")
    if starting := [release for release in verdict.blockers if release not in stopped]:
        _say_fact("broker", f"{', '.join(starting)}: starts")
    for finding in dict.fromkeys(each for found in verdict.blockers.values() for each in found):
        releases = ", ".join(release for release, found in verdict.blockers.items() if finding in found)
        advice = "move it away: " if finding.kind in ("file-name", "not-a-file") else ""
        _say_fact("broker", f"{releases}: does not start; {advice}{finding}")
    if verdict.warning:
        _say_fact("danger", verdict.warning)
    for command, effect in verdict.commands.items():
        _say_fact("next", command)
        _say_fact("", effect)


def _say_fact(name: str, text: str) -> None:
    say(f"  {name.ljust(_WIDTH)}  {text}")


COMMAND = Command("verify", "check every byte that has a meaning", _DETAILS, _add_arguments, _run)
