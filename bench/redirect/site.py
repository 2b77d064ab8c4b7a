"""Clusters P and B, a name server and a load balancer, in network namespaces of this run.

P is reached through a pair of interfaces. Without its address they are a black hole, which sends
no answer, not even that the host is unreachable.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from bench.redirect.tools import Tools

P, B, FRONT, HERE = "10.99.1.1", "10.99.2.1", "10.99.2.10", "10.99.1.254"
NAME: Final = "kafka.test"
DIRECT: Final = 9092
"""Port of both clusters, on the advertised addresses of their brokers."""
FRONTED: Final = 9094
"""Port behind the load balancer; brokers advertise the load balancer there."""

_ZONE: Final = """$TTL 1
@ IN SOA ns.test. admin.test. 1 60 60 60 1
@ IN NS ns.test.
ns IN A 127.0.0.1
kafka IN A {address}
"""


class Site:
    """All processes and networks; the owner of ``home`` empties it."""

    def __init__(self, tools: Tools, home: Path) -> None:
        self._tools, self._home = tools, home
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Create the networks and start all processes."""
        _run("ip link set lo up")
        for address in (B, FRONT):
            _run(f"ip addr add {address}/32 dev lo")
        _run("ip netns add p")
        _run("ip link add vp type veth peer name vp1")
        _run("ip link set vp1 netns p")
        _run(f"ip addr add {HERE}/24 dev vp")
        _run("ip link set vp up")
        _run("ip netns exec p ip link set lo up")
        _run("ip netns exec p ip link set vp1 up")
        shown = subprocess.run(
            ["ip", "netns", "exec", "p", "cat", "/sys/class/net/vp1/address"],
            capture_output=True,
            check=True,
            text=True,
        )
        # Otherwise the kernel reports the host as unreachable after a while.
        _run(f"ip neigh replace {P} lladdr {shown.stdout.strip()} dev vp nud permanent")
        self.attach_p()
        self._start_names()
        self._start_balancer()
        for alias in ("P", "B"):
            self._format(alias)
            self.start_broker(alias)

    def stop(self) -> None:
        """End all processes; the networks go with the namespace."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()

    def attach_p(self) -> None:
        """Make P reachable."""
        _run(f"ip netns exec p ip addr replace {P}/24 dev vp1")

    def detach_p(self) -> None:
        """Make P a black hole, which drops packets silently."""
        _run(f"ip netns exec p ip addr del {P}/24 dev vp1")

    def start_broker(self, alias: str) -> None:
        """Start a broker and wait until it answers."""
        prefix = ["ip", "netns", "exec", "p"] if alias == "P" else []
        java = [self._tools.java, "-Xmx512m", "-XX:+UseSerialGC", "-cp", self._tools.broker]
        properties = str(self._home / alias / "server.properties")
        self._spawn(alias, [*prefix, *java, "kafka.Kafka", properties])
        self.admin(alias)

    def kill_broker(self, alias: str) -> None:
        """Kill a broker; its host stays up and refuses connections."""
        process = self._processes.pop(alias)
        process.kill()
        process.wait()

    def admin(self, alias: str, seconds: float = 240.0) -> AdminClient:
        """Return an admin client once the cluster answers."""
        address = f"{P if alias == 'P' else B}:{DIRECT}"
        deadline = time.monotonic() + seconds
        while True:
            try:
                client = AdminClient({"bootstrap.servers": address, "log_level": 0})
                client.list_topics(timeout=5)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
            else:
                return client

    def create(self, topic: str) -> None:
        """Create a topic on both clusters."""
        config = {"message.timestamp.type": "LogAppendTime"}
        for alias in ("P", "B"):
            admin = self.admin(alias)  # its calls end with the client
            made = admin.create_topics([NewTopic(topic, 1, 1, config=config)], request_timeout=120)
            made[topic].result(240)

    def point_name_to(self, address: str) -> None:
        """Change the name with nsupdate, as an administrator would."""
        change = f"server 127.0.0.1\nzone test\nupdate delete {NAME} A\n"
        change += f"update add {NAME} 1 A {address}\nsend\n"
        subprocess.run(
            [self._tools.program("nsupdate")],
            input=change.encode(),
            env=self._tools.environ,
            check=True,
        )

    def balance_to(self, alias: str) -> None:
        """Send connections to a cluster from now on, and end those to the other one."""
        other = "B" if alias == "P" else "P"
        for command in (
            f"set server kafka/{other} state maint",
            f"set server kafka/{alias} state ready",
            f"shutdown sessions server kafka/{other}",
        ):
            with socket.socket(socket.AF_UNIX) as link:
                link.connect(str(self._home / "haproxy.sock"))
                link.sendall(command.encode() + b"\n")
                if said := link.recv(4096).strip():
                    raise RuntimeError(f"{command}: {said.decode()}")

    def _start_names(self) -> None:
        home = self._home / "names"
        home.mkdir()
        (home / "test.zone").write_text(_ZONE.format(address=P))
        (home / "named.conf").write_text(
            f'options {{ directory "{home}"; listen-on {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};'
            f' pid-file "{home}/pid"; session-keyfile "{home}/key"; recursion no; '
            f"dnssec-validation no; }};\n"
            f'zone "test" {{ type primary; file "test.zone"; allow-update {{ 127.0.0.1; }}; }};\n'
            f"controls {{ }};\n"
        )
        resolver = home / "resolv.conf"
        resolver.write_text("nameserver 127.0.0.1\noptions timeout:1\n")
        _run(f"mount --bind {resolver} /etc/resolv.conf")
        named = [self._tools.program("named"), "-g", "-c", str(home / "named.conf")]
        self._spawn("names", named, self._tools.environ)
        _until(lambda: socket.gethostbyname(NAME) == P, "the name server")

    def _start_balancer(self) -> None:
        config = self._home / "haproxy.cfg"
        config.write_text(
            f"global\n  stats socket {self._home}/haproxy.sock level admin\n"
            "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n"
            f"frontend front\n  bind {FRONT}:{DIRECT}\n  default_backend kafka\n"
            f"backend kafka\n  server P {P}:{FRONTED}\n  server B {B}:{FRONTED} disabled\n"
        )
        program = [self._tools.program("haproxy"), "-db", "-f", str(config)]
        self._spawn("balancer", program, self._tools.environ)
        _until((self._home / "haproxy.sock").exists, "the load balancer")

    def _format(self, alias: str) -> None:
        home, address = self._home / alias, P if alias == "P" else B
        home.mkdir()
        listeners = {
            "listeners": f"DIRECT://{address}:{DIRECT},FRONT://{address}:{FRONTED},"
            f"CONTROLLER://{address}:9093",
            "advertised.listeners": f"DIRECT://{address}:{DIRECT},FRONT://{FRONT}:{DIRECT}",
            "listener.security.protocol.map": "DIRECT:PLAINTEXT,FRONT:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "DIRECT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"{address}:9093",
        }
        settings = {
            **listeners,
            "node.id": "1",
            "process.roles": "broker,controller",
            "log.dirs": str(home / "data"),
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
        }
        properties = home / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        storage = [self._tools.java, "-cp", self._tools.broker, "kafka.tools.StorageTool"]
        uuid = "P" * 22 if alias == "P" else "B" * 22
        arguments = ["format", "--standalone", "-t", uuid, "-c", str(properties)]
        subprocess.run([*storage, *arguments], check=True, capture_output=True)

    def _spawn(
        self, name: str, command: Sequence[str], environ: dict[str, str] | None = None
    ) -> None:
        log = (self._home / f"{name}.log").open("ab")
        self._processes[name] = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environ
        )


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True)


def _until(condition: Any, what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} does not come up")
        time.sleep(0.1)
