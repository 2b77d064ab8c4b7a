"""Programs and jars, fetched once into the user's cache and not installed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from srm_lab.stack.jars import cache_folder, fetch, kafka_class_path, maven_url, parse_lock
from srm_lab.stack.java import find_java

VERSIONS: Final = ("3.9.1", "4.3.1", "4.4.0")
_HERE: Final = Path(__file__).parent
_PACKAGES: Final = (
    *("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1"),
    *("bind9", "bind9-dnsutils", "bind9-libs", "bind9-utils", "libjemalloc2", "liblmdb0"),
    *("libmaxminddb0", "libfstrm0", "libprotobuf-c1", "libuv1", "libnghttp2-14"),
)


@dataclass(frozen=True)
class Tools:
    """Paths of all tools; ``probes`` are class paths of the Java probe by client version."""

    java: str
    broker: str
    probes: Mapping[str, str]
    root: Path

    @classmethod
    def prepare(cls) -> Tools:
        """Fetch and compile missing Debian packages and Maven jars."""
        java, home = str(find_java().program), cache_folder() / "redirect-clients"
        probes = {}
        for version in VERSIONS:
            lock = parse_lock((_HERE / f"kafka-clients-{version}.lock").read_text())
            jars = ":".join(map(str, fetch(lock, home / version, maven_url())))
            out = home / version / "classes"
            out.mkdir(exist_ok=True)
            compiler = ["-m", "jdk.compiler/com.sun.tools.javac.Main", "-d", str(out), "-cp", jars]
            subprocess.run([java, *compiler, str(_HERE / "Probe.java")], check=True)
            probes[version] = f"{out}:{jars}"
        root = home / "debian"
        if not (root / "usr/sbin/haproxy").exists():
            packages = home / "packages"
            packages.mkdir(exist_ok=True)
            subprocess.run(["apt-get", "download", "-q", *_PACKAGES], cwd=packages, check=True)
            for package in packages.glob("*.deb"):
                subprocess.run(["dpkg", "-x", str(package), str(root)], check=True)
        return cls(java, kafka_class_path(), probes, root)

    def program(self, name: str) -> str:
        """Return the path of a program in the packages."""
        return str(next(p for p in self.root.glob(f"usr/*bin/{name}")))

    @property
    def environ(self) -> dict[str, str]:
        """Environment for the programs of the packages."""
        libraries = [str(p) for p in self.root.glob("*lib*/x86_64-linux-gnu")]
        libraries += [str(p) for p in self.root.glob("usr/lib/x86_64-linux-gnu")]
        return {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)}
