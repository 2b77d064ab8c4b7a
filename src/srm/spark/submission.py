"""From the properties file to what spark-submit is given: the same for DAGs and commands."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from srm.errors import ConfigError

MASTER: Final = "spark.master"
DEPLOY_MODE: Final = "spark.submit.deployMode"

_PYTHON: Final = "spark.pyspark.python"
_DRIVER_PYTHON: Final = "spark.pyspark.driver.python"
_IMAGE: Final = "spark.kubernetes.container.image"
_IMAGES: Final = {
    "client": ("spark.kubernetes.executor.container.image",),
    "cluster": (
        "spark.kubernetes.driver.container.image",
        "spark.kubernetes.executor.container.image",
    ),
}
_FOR_WORKERS: Final = frozenset({"spark.files", "spark.archives", _PYTHON})
_MOUNT: Final = re.compile(
    r"spark\.kubernetes\.driver\.(?:secrets\.[^.]+|volumes\.\w+\.[^.]+\.mount\.path)"
)


@dataclass(frozen=True, slots=True)
class Submission:
    """Input of spark-submit; ``in_cluster``: Spark chooses the machine of the driver."""

    conf: Mapping[str, str]
    files: str | None
    archives: str | None
    arguments: tuple[str, ...]
    deploy_mode: str | None = None
    in_cluster: bool = False


def settings_for(spark: Mapping[str, str], master: str) -> dict[str, str]:
    """Return the settings that apply to a master: a local one has all files, and one Python."""
    local = master.startswith("local")
    return {key: value for key, value in spark.items() if not (local and key in _FOR_WORKERS)}


def submission(
    spark: Mapping[str, str],
    master: str,
    deploy_mode: str | None,
    config: str | None,
    arguments: Sequence[str],
) -> Submission:
    """Return what spark-submit is given for a program that reads the properties file ``config``.

    In cluster mode the file travels along, and the program finds it by its base name in its working
    folder. A file below a folder that is mounted into a driver pod stays where it is.
    """
    deploy_mode = deploy_mode or spark.get(DEPLOY_MODE)
    in_cluster = deploy_mode == "cluster" and not master.startswith("local")
    conf = settings_for(spark, master)
    for decided in (MASTER, DEPLOY_MODE):
        conf.pop(decided, None)
    files, archives = conf.pop("spark.files", None), conf.pop("spark.archives", None)
    _require_image(conf, master, deploy_mode or "client", config)
    if in_cluster:
        mounts = [value for key, value in conf.items() if _MOUNT.fullmatch(key)]
        if config is not None and not any(map(PurePosixPath(config).is_relative_to, mounts)):
            files = ",".join(filter(None, (files, config)))
            name = PurePosixPath(config).name
            arguments = [name if word == config else word for word in arguments]
    elif _PYTHON in conf and not conf[_PYTHON].startswith("/"):
        # In an archive that only executors unpack.
        conf.setdefault(_DRIVER_PYTHON, sys.executable)
    return Submission(
        conf, files or None, archives or None, tuple(arguments), deploy_mode, in_cluster
    )


def _require_image(conf: Mapping[str, str], master: str, mode: str, config: str | None) -> None:
    if not master.startswith("k8s:") or _IMAGE in conf:
        return
    missing = [key for key in _IMAGES.get(mode, ()) if key not in conf]
    if missing:
        raise ConfigError(
            f"{config or 'the properties file'}: Spark master {master} has no image: set {_IMAGE}"
        )
