"""Report which of the needed programs and resources this machine has, and which it lacks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onionlab.commands._arguments import (
    add_executor_arguments,
    add_override_arguments,
    add_variants_argument,
)
from onionlab.doctor import examine
from onionlab.engines import AUTO, resolve_engine_name
from onionlab.engines.examination import MISSING, OK, WARN, Finding, Need, Question
from onionlab.errors import UserError
from onionlab.paths import working_root

HELP = "report what this machine has and lacks, and how to fix it"

STATUSES = {0: "nothing is missing", 1: "something is missing"}

STYLES = {OK: "green", WARN: "yellow", MISSING: "bold red"}


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="judge by the needs of this experiment")
    add_variants_argument(parser)
    add_override_arguments(parser)
    add_executor_arguments(parser)


def run(args: argparse.Namespace) -> int:
    root = working_root()
    need, cost = experiment_need(args, root) if args.name else (None, ())
    question = Question(
        root=root,
        engine=resolve_engine_name(
            args.engine or AUTO, root=root, shadow=args.shadow or None, tgen=args.tgen or None
        ),
        need=need,
        shadow=args.shadow or None,
        tgen=args.tgen or None,
    )
    findings = [*examine(question), *cost, *check_cluster(args)]
    if sys.stdout.isatty():
        show_table(findings)
    else:
        for line in plain_lines(findings):
            print(line)
    missing = [finding.subject for finding in findings if finding.status == MISSING]
    if missing:
        print(f"Missing: {', '.join(missing)}.")
        return 1
    return 0


def experiment_need(
    args: argparse.Namespace, root: Path
) -> tuple[Need | None, tuple[Finding, ...]]:
    """Return the resources that an experiment needs, and findings on its cost and clients of Arti.

    If its imported networks are missing, return None and a finding that says so.
    """
    # These imports are needed only for an experiment.
    from onionlab.commands._request import parse_request
    from onionlab.experiment.tornettools_networks import require_networks
    from onionlab.runs.costs.estimate import Estimator, cost_text, estimate_resources
    from onionlab.runs.costs.requested_runs import resolve_request
    from onionlab.runs.run_builder import load_experiment

    request = parse_request(args)
    experiment = load_experiment(root, request)
    try:
        require_networks(root, experiment)
    except UserError as error:
        return None, (Finding(MISSING, "networks", error.message, error.hint or ""),)
    resolved = resolve_request(root, request)
    resources = estimate_resources(root, resolved.experiment, resolved.engine)
    estimate = Estimator(root).estimate([request])
    need = Need(
        name=resolved.experiment.name,
        memory_bytes=resources.memory_bytes,
        disk_bytes=round(estimate.reserved_disk_bytes),
        processes=resources.processes,
    )
    return need, (Finding(OK, "cost", cost_text(estimate)), *check_rust(root, resolved.variants))


def check_rust(root: Path, names: Sequence[str]) -> list[Finding]:
    """Return a finding for each version of Arti that the named variants use as client."""
    from onionlab.programs import arti
    from onionlab.programs.tor.variants import load_variants

    variants = load_variants(root)
    clients = {one.program: one for name in names if (one := variants[name].client)}
    findings = []
    for client in clients.values():
        if arti.is_built(root, client):
            findings.append(Finding(OK, "Rust", f"not needed: Arti {client.arti} is built"))
            continue
        try:
            text = f"{arti.installed_rust(client)}, for Arti {client.arti}"
            findings.append(Finding(OK, "Rust", text))
        except UserError as error:
            findings.append(Finding(MISSING, "Rust", error.message, error.hint or ""))
    return findings


def check_cluster(args: argparse.Namespace) -> list[Finding]:
    """Return a finding on whether the requested cluster accepts jobs, or [] without a cluster."""
    if not args.executor:
        return []
    from onionlab.commands._request import parse_executor
    from onionlab.runs.workflow.executor import JobSize

    size = JobSize(cpus=1, memory_mb=1500, runtime_min=15, disk_mb=1)
    try:
        executor = parse_executor(args)
        assert executor is not None
        executor.require_acceptance(size)
    except UserError as error:
        return [Finding(MISSING, "cluster", error.message, error.hint or "")]
    return [Finding(OK, "cluster", f"{executor.name}, as configured in {executor.profile}")]


def plain_lines(findings: list[Finding]) -> list[str]:
    """Return a line for each finding, followed by the indented lines of its fix."""
    width = max(len(finding.subject) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.status:7}  {finding.subject:{width}}  {finding.text}")
        lines += [" " * (11 + width) + line for line in finding.fix.splitlines()]
    return lines


def show_table(findings: list[Finding]) -> None:
    """Print the findings on a terminal."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        text = Text(finding.text)
        if finding.fix:
            text.append("\n" + finding.fix, style="dim")
        # Use Text, because Rich interprets square brackets in a str as markup.
        status = Text(finding.status, style=STYLES[finding.status])
        table.add_row(status, Text(finding.subject), text)
    Console(file=getattr(sys.stdout, "terminal", None)).print(table)
