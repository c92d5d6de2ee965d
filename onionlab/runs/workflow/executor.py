"""Where the jobs of a workflow go: to this machine, or through an executor of Snakemake to others.

All that is particular to executors stands here and in slurm.py: which there are, what may be said
of one on the command line or in a Snakemake profile, and the words that Snakemake gets for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from onionlab.errors import UserError
from onionlab.paths import is_folder
from onionlab.runs.workflow.slurm import require_commands

SLURM, GENERIC = "slurm", "generic"
PLUGINS: Mapping[str, str] = {SLURM: "slurm", GENERIC: "cluster-generic"}
"""Snakemake's names of the executors, by ours."""

MOST_JOBS = 100
"""Jobs in the queue at a time, where neither MAX_JOBS nor the profile says how many."""
PROFILE_FILE = re.compile(r"(?:profile|config)(?:\.v(?P<version>\d+)\+)?\.yaml")
"""As Snakemake looks for them; the one for the newest version counts."""
SUBMIT = "cluster-generic-submit-cmd"

OURS = frozenset(
    [
        "snakefile",
        "directory",
        "configfile",
        "configfiles",
        "config",
        "nolock",
        "unlock",
        "until",
        "dry-run",
        "dryrun",
        "touch",
        "force",
        "forceall",
        "forcerun",
        "omit-from",
        "batch",
        "rerun-triggers",
        "rerun-incomplete",
        "ignore-incomplete",
        "groups",
        "no-shared-fs",
        "shared-fs-usage",
        "jobname",
        "local-cores",
        "slurm-jobname-prefix",
        "slurm-logdir",
    ]
)
"""What a profile may not say: the workflow counts on its own."""


@dataclass(frozen=True)
class Profile:
    """A Snakemake profile: the file in its folder, and what it says."""

    file: Path
    options: Mapping[str, Any]

    def default_resource(self, name: str) -> str | None:
        """What it says of a resource of every job."""
        given = self.options.get("default-resources")
        if isinstance(given, Mapping):
            found = given.get(name)
            return None if found is None else str(found)
        for entry in given if isinstance(given, list) else str(given or "").split():
            key, _, value = str(entry).partition("=")
            if key == name:
                return value.strip("\"'")
        return None


@dataclass(frozen=True)
class Executor:
    """What was asked for: an executor, and what it is told.

    Attributes:
        name: ``slurm`` or ``generic``.
        partition, account, qos: of Slurm's jobs; None: as the profile or the cluster has it.
        max_jobs: so many in the queue at a time; None: as the profile says.
        profile: a folder with a Snakemake profile; None: the one that comes with the program.
    """

    name: str
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    max_jobs: int | None = None
    profile: Path | None = None

    def opened(self, root: Path) -> OpenExecutor:
        """Read its profile.

        Raises UserError where it is none or contradicts what was asked, or where the commands are
        missing that submit jobs.
        """
        if self.name == GENERIC and self.profile is None:
            raise UserError(
                "EXECUTOR=generic takes a profile that says how jobs are submitted",
                f"PROFILE=folder, with {SUBMIT} in its config.yaml: docs/how-to/cluster.md",
            )
        profile = read_profile(self.profile or root / f"configs/{self.name}")
        _require_agreement(self, profile)
        if self.name == SLURM:
            require_commands()
        return OpenExecutor(self, profile)


@dataclass(frozen=True)
class OpenExecutor:
    """An executor with its profile."""

    asked: Executor
    profile: Profile

    @property
    def is_slurm(self) -> bool:
        """Whether Slurm's own commands can be asked."""
        return self.asked.name == SLURM

    @property
    def max_jobs(self) -> int:
        """Jobs in the queue at a time."""
        found = self.asked.max_jobs or self.profile.options.get("jobs", MOST_JOBS)
        return found if isinstance(found, int) else MOST_JOBS

    @property
    def partition(self) -> str | None:
        """Where jobs go; None: where Slurm sends them."""
        return self.asked.partition or self.profile.default_resource("slurm_partition")

    @property
    def account(self) -> str | None:
        """Who pays; None: as Slurm has it."""
        return self.asked.account or self.profile.default_resource("slurm_account")

    @property
    def qos(self) -> str | None:
        """Quality of service; None: as Slurm has it."""
        found = self.profile.options.get("slurm-qos")
        return self.asked.qos or self.profile.default_resource("qos") or (found and str(found))

    def job_resources(self) -> dict[str, str]:
        """What each job says of itself besides its size, as the executor's plugin names it."""
        asked = self.asked
        named = (("slurm_partition", asked.partition), ("slurm_account", asked.account))
        return {key: value for key, value in (*named, ("qos", asked.qos)) if value is not None}

    def arguments(self) -> list[str]:
        """Snakemake's words for it, whatever the cluster."""
        words = ["--executor", PLUGINS[self.asked.name], "--jobs", str(self.max_jobs)]
        words += ["--profile", str(self.profile.file), "--local-cores", "1"]
        if "latency-wait" not in self.profile.options:
            # Other nodes' files come with a delay: as long as NFS may keep what it knew.
            words += ["--latency-wait", "60"]
        return words


def read_profile(folder: Path) -> Profile:
    """Read a Snakemake profile. Raises UserError where there is none, or one that is no list."""
    files = folder.iterdir() if is_folder(folder) else ()
    named = [(found, file) for file in files if (found := PROFILE_FILE.fullmatch(file.name))]
    if not named:
        raise UserError(
            f"{folder} is no Snakemake profile: there is no config.yaml in it",
            "PROFILE= names a folder; configs/slurm is one",
        )
    _, path = max(named, key=lambda one: (int(one[0]["version"] or 0), one[1].name))
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is no list of options with values, as `jobs: 100`")
    return Profile(
        path.resolve(), {str(key).replace("_", "-"): value for key, value in content.items()}
    )


def _require_agreement(asked: Executor, profile: Profile) -> None:
    """Raises UserError where a profile says something else than what was asked for."""
    named = profile.options.get("executor", PLUGINS[asked.name])
    if named != PLUGINS[asked.name]:
        raise UserError(
            f"{profile.file}: the profile says executor: {named}, and EXECUTOR={asked.name} "
            f"stands for {PLUGINS[asked.name]}",
            "name another profile, or leave `executor` out of it",
        )
    taken = sorted(OURS & set(profile.options))
    if taken:
        raise UserError(
            f"{profile.file}: a profile may not say {', '.join(taken)}: the workflow does",
            "leave it out",
        )
    jobs = profile.options.get("jobs", MOST_JOBS)
    if not isinstance(jobs, int) or isinstance(jobs, bool) or jobs < 1:
        raise UserError(
            f"{profile.file}: jobs: expected a whole number of at least 1, got {jobs!r}"
        )
    if asked.name == GENERIC:
        _require_generic(asked, profile)


def _require_generic(asked: Executor, profile: Profile) -> None:
    if not str(profile.options.get(SUBMIT) or "").strip():
        raise UserError(
            f"{profile.file}: the profile has no {SUBMIT}",
            "it says how a job is submitted: docs/how-to/cluster.md",
        )
    given = {"PARTITION": asked.partition, "ACCOUNT": asked.account, "QOS": asked.qos}
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise UserError(
            f"{' and '.join(named)}: these are Slurm's",
            f"with EXECUTOR=generic they stand in the profile's {SUBMIT}",
        )
