"""Podman with a storage of its own, and podman-compose: containers where there is no Docker."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_COMPOSE: Final = "podman-compose==1.6.0"
_MOST_PROCESSES: Final = 32_768
"""Podman lowers its own limit to this, and may not raise it for a container."""


class CommandError(Exception):
    """A program failed, or took too long."""


def run(
    command: Sequence[str | Path],
    limit_s: float,
    log: Path,
    environ: Mapping[str, str] | None = None,
) -> str:
    """Run a program and return what it prints; its errors go to the log.

    Raises:
        CommandError: it failed, or took longer than the limit.
    """
    words = [str(word) for word in command]
    with log.open("a") as errors:
        errors.write(f"$ {' '.join(words)}\n")
        errors.flush()
        try:
            ended = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                timeout=limit_s,
                check=False,
                env={**os.environ, **(environ or {})},
            )
        except subprocess.TimeoutExpired as error:
            raise CommandError(f"not done within {limit_s:.0f} s: {' '.join(words)}") from error
        errors.write(ended.stdout)
    if ended.returncode:
        raise CommandError(f"exit code {ended.returncode} of {' '.join(words)}; see {log}")
    return ended.stdout


class Podman:
    """Images, containers, volumes and networks below one folder."""

    def __init__(self, folder: Path, project: Path) -> None:
        self.log = folder / "podman.log"
        self._folder = folder
        self._project = project
        # The path of a socket below it has to be short.
        self._run = Path(tempfile.mkdtemp(prefix="srm-podman-"))
        self._environ = {
            # There is no systemd here to run health checks by its timers.
            "DISABLE_HC_SYSTEMD": "true",
            # A build in a namespace of its own needs rights that a container seldom has.
            "BUILDAH_ISOLATION": "chroot",
            **{f"CONTAINERS_{name}": str(path) for name, path in self._files().items()},
        }

    def _files(self) -> dict[str, Path]:
        limits = [
            f"{name}={value}:{value}"
            for name, value in (
                ("nofile", resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
                ("nproc", min(resource.getrlimit(resource.RLIMIT_NPROC)[1], _MOST_PROCESSES)),
            )
        ]
        texts = {
            "STORAGE_CONF": f"[storage]\ndriver = '{self._driver()}'\n"
            f"graphroot = '{self._folder / 'storage'}'\nrunroot = '{self._run}'\n",
            "CONF": f"[containers]\ndefault_ulimits = {json.dumps(limits)}\n"
            "[engine]\ncgroup_manager = 'cgroupfs'\nruntime = 'runc'\nevents_logger = 'file'\n"
            f"[network]\nnetwork_backend = 'netavark'\nnetwork_config_dir = '{self._run}/net'\n",
            "REGISTRIES_CONF": "unqualified-search-registries = ['docker.io']\n",
        }
        paths = {name: self._folder / f"{name.lower()}.conf" for name in texts}
        for name, text in texts.items():
            paths[name].write_text(text)
        return paths

    def _driver(self) -> str:
        """Return ``overlay`` where the kernel mounts one; ``vfs`` copies whole layers."""
        trial = self._folder / "trial"
        for name in ("lower", "upper", "work", "mount"):
            (trial / name).mkdir(parents=True, exist_ok=True)
        options = ",".join(f"{name}dir={trial / name}" for name in ("lower", "upper", "work"))
        mounted = trial / "mount"
        try:
            run(["mount", "-t", "overlay", "-o", options, "overlay", mounted], 10, self.log)
            run(["umount", mounted], 10, self.log)
        except CommandError:
            return "vfs"
        return "overlay"

    def __call__(self, *words: str | Path, limit_s: float = 60) -> str:
        """Run a command of podman; return what it prints."""
        return run(["podman", *words], limit_s, self.log, self._environ)

    def build(self, image: str, context: Path) -> None:
        """Build an image of one layer."""
        self("build", "--pull=never", "--layers=false", "--tag", image, context, limit_s=600)

    def compose(
        self, *words: str, limit_s: float, environ: Mapping[str, str] | None = None
    ) -> None:
        """Run podman-compose on the project's file."""
        program = self._folder / "venv" / "bin" / "podman-compose"
        if not program.exists():
            run([sys.executable, "-m", "venv", program.parents[1]], 120, self.log)
            pip = [program.with_name("pip"), "install", "--quiet", _COMPOSE]
            run(pip, 300, self.log)
        file = self._project / "docker-compose.yaml"
        environ = {**self._environ, **(environ or {})}
        # Layers would cost a copy of everything for each line of the recipe.
        build = "--podman-build-args=--pull=never --layers=false"
        run([program, "--file", file, build, *words], limit_s, self.log, environ)

    def state(self, container: str) -> dict[str, Any]:
        """Return what podman says of the state of a container."""
        found: dict[str, Any] = json.loads(
            self("inspect", "--format", "{{json .State}}", container)
        )
        return found

    def keep_log(self, container: str, path: Path) -> None:
        """Write what a container has printed to a file."""
        command = ["sh", "-c", 'podman logs "$0" >"$1" 2>&1', container, path]
        run(command, 60, self.log, self._environ)

    def remove_all(self) -> None:
        """Remove all containers, images, volumes and networks of this storage."""
        self("rm", "--all", "--force", "--time", "5", limit_s=300)
        self("system", "reset", "--force", limit_s=300)
