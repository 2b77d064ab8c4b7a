"""Commands of the programs: names, places, help in one line, and examples.

Help and completion need this table alone; a module is imported when its command runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True)
class Entry:
    """A command, or a group of commands.

    ``help``: one line; of a command the first line of its docstring.
    ``target``: module and function of a command, as ``module:function``.
    ``default``: command of a group that takes what names none of its commands.
    """

    help: str
    target: str = ""
    examples: tuple[str, ...] = ()
    commands: Mapping[str, Entry] = field(default_factory=lambda: MappingProxyType({}))
    default: str = ""


def _group(text: str, default: str = "", /, **commands: Entry) -> Entry:
    return Entry(text, commands=commands, default=default)


def _flows(target: str, text: str, *examples: str) -> Entry:
    return Entry(text, f"srm.cli.flows.{target}", examples)


def _moves(target: str, text: str, *examples: str) -> Entry:
    return Entry(text, f"srm.cli.moves.{target}", examples)


def _lab(target: str, text: str, *examples: str) -> Entry:
    return Entry(text, f"srm_lab.cli.{target}", examples)


SRM: Final[Mapping[str, Entry]] = {
    "demo": _lab(
        "demo:demo",
        "Replicate, fail over, fail back, and prove that nothing was lost or read twice.",
        "srm demo",
        "srm demo --disaster --records 10000",
    ),
    "stack": _group(
        "Embedded Kafka clusters, Airflow and Spark, left running to explore.",
        up=_lab(
            "stack:up",
            "Start what does not run yet, wait until all is ready, leave it running.",
            "srm stack up",
            "srm stack up --kafka-only --home /tmp/stack",
        ),
        down=_lab(
            "stack:down",
            "Stop everything the stack started; its data stays for the next start.",
            "srm stack down",
        ),
        status=_lab(
            "stack:show_status",
            "Show each component with its state, address and log file.",
            "srm stack status --watch",
        ),
    ),
    "replicate": _flows(
        "replicator:replicate",
        "Copy topics of one or more flows until stopped: a Spark application in the foreground.",
        "srm replicate",
        "srm replicate --flow P:B --master 'local[4]' --until-caught-up",
    ),
    "replicator": _group(
        "Stop or restart the replicator, whichever host it runs on.",
        stop=_flows(
            "replicator:stop",
            "End the applications that drive the flows, and keep srm_replication from starting "
            "another.",
            "srm replicator stop --flow P:B",
        ),
        restart=_flows(
            "replicator:restart",
            "End the applications that drive the flows, so that srm_replication starts another "
            "one.",
            "srm replicator restart --wait 120",
        ),
    ),
    "init": _flows(
        "config:init",
        "Write a commented srm.properties after five questions; with --yes from options alone.",
        "srm init",
        "srm init --yes --bootstrap-servers P=kafka-p:9092 --bootstrap-servers B=kafka-b:9092",
    ),
    "doctor": _flows(
        "doctor:doctor",
        "Check this host, the configuration and each cluster; nothing is written.",
        "srm doctor --config srm.properties",
    ),
    "rights": _flows(
        "doctor:rights",
        "Print the kafka-acls.sh commands that give a role its rights.",
        "srm rights --flow P:B --principal User:srm",
        "srm rights --role client --flow P:B --group billing --principal User:billing",
    ),
    "config": _group(
        "Check the properties file and explain its values.",
        check=_flows(
            "config:check",
            "Read the file and report its clusters, flows and warnings; exit 2 where it has an "
            "error.",
            "srm config check --config srm.properties --strict",
            "srm config check --online",
        ),
        explain=_flows(
            "config:explain",
            "Show the value of a key for each flow (or client), and the lines it came from.",
            "srm config explain topics",
            "srm config explain security.protocol --flow P:B",
        ),
        reload=_flows(
            "replicator:reload",
            "Show what the replicator has taken up from the file, and what waits for its restart.",
            "srm config reload --flow P:B",
        ),
        client=_flows(
            "config:client",
            "Write the file that applications need: clusters, addresses, and no secrets of this "
            "one.",
            "srm config client --output srm-client.properties --set P.sasl.username=app",
        ),
        **{
            "import": _flows(
                "config:import_file",
                "Translate MirrorMaker 2 on Kafka Connect or Strimzi into a properties file.",
                "srm config import source.json checkpoint.json --output srm.properties",
            )
        },
    ),
    "import": _group(
        "Take over from MirrorMaker 2 or SRM without copying a record again.",
        mm2=_flows(
            "importing:mm2",
            "Continue after the records that MirrorMaker 2, or another tool, has copied.",
            "srm import mm2 --config mm2.properties --dry-run",
            "srm import mm2 --flow P:B --topic Payments --yes",
        ),
        srm=_flows(
            "importing:srm",
            "Take over the lists of SRM's srm-control, then do what srm import mm2 does.",
            "srm import srm --flow P:B --list topics=topics.txt --list groups=groups.txt",
        ),
    ),
    "export": _group(
        "Go back to MirrorMaker 2.",
        mm2=_flows(
            "importing:export_mm2",
            "Let MirrorMaker 2 continue where srm has stopped: write the offsets of its connector.",
            "srm export mm2 --flow P:B --dry-run",
        ),
    ),
    "metrics": _group(
        "Windowed metrics: byte rate, replication and checkpoint latency, record lag.",
        aggregate=_flows(
            "jobs:aggregate",
            "Compute the windows of the last minutes from the raw metrics; again is harmless.",
            "srm metrics aggregate --flow P:B",
        ),
        show=_flows(
            "jobs:show_windows",
            "Show the newest window of each topic and flow, or with --total all of them together.",
            "srm metrics show --topic Payments --watch 10",
        ),
    ),
    "verify": _flows(
        "jobs:verify",
        "Compare count, order and content of source and target in Spark tasks.",
        "srm verify --flow P:B",
        "srm verify --flow P:B --topic Payments --full",
    ),
    "checkpoints": _group(
        "Checkpoints: where groups continue on the other cluster.",
        emit=_flows(
            "groups:emit_command",
            "Translate committed offsets, forward and reverse, and write the checkpoints that "
            "changed.",
            "srm checkpoints emit",
            "srm checkpoints emit --flow P:B --group billing --dry-run",
        ),
    ),
    "groups": _group(
        "Offsets of consumer groups on the target.",
        sync=_flows(
            "groups:sync",
            "Write translated offsets for groups that are idle on the target; never over a "
            "consumer's.",
            "srm groups sync --flow P:B --dry-run",
        ),
        list=_flows(
            "topics:show_groups",
            "List the groups of a flow: members, offsets on the target, age of the last "
            "checkpoint.",
            "srm groups list --flow P:B --selected",
        ),
    ),
    "topics": _group(
        "Remote topics on the target.",
        sync=_flows(
            "topics:sync",
            "Create missing remote topics, add partitions, copy settings, add ACLs; nothing is "
            "deleted.",
            "srm topics sync --flow P:B --dry-run",
        ),
        plan=_flows(
            "topics:plan",
            "Show what differs between source and target: topics, settings, ACLs, quotas, users.",
            "srm topics plan --flow P:B",
        ),
        apply=_flows(
            "topics:apply",
            "Show the plan, and carry out exactly that once it is approved.",
            "srm topics apply --flow P:B",
            "srm topics apply --flow P:B --remove-acls --yes",
        ),
        append=_flows(
            "topics:append",
            "Copy topics after the records that others wrote to their remote topics.",
            "srm topics append --flow P:B --topic Payments --dry-run",
        ),
        list=_flows(
            "topics:show_topics",
            "List the topics of a flow: partitions, copy, state, and why a topic is not selected.",
            "srm topics list --flow P:B --remote",
        ),
    ),
    "translate": _flows(
        "groups:translate",
        "Translate one offset through the exact map of a flow.",
        "srm translate --flow P:B --topic Payments --partition 0 --offset 1500",
        "srm translate --flow P:B --topic P.Payments --offset 1420 --reverse",
    ),
    "status": _flows(
        "status:status",
        "Show health, replicator, topics and groups of the flows, and what to do about what is "
        "wrong.",
        "srm status",
        "srm status --flow P:B --watch 5",
    ),
    "why": _flows(
        "status:why",
        "Say why a topic is (not) copied, or a group (not) translated and able to move.",
        "srm why Payments",
        "srm why billing --kind group --flow P:B",
    ),
    "failover": _group(
        "Move consumer groups and producers to the other cluster, and back.",
        plan=_moves(
            "failover:plan",
            "Show what a move would do; nothing is written anywhere.",
            "srm failover plan",
            "srm failover plan --operation failback --group billing",
        ),
        run=_moves(
            "failover:run",
            "Carry out a move. Ctrl-C releases the hold, until clients were redirected.",
            "srm failover run",
            "srm failover run --mode unplanned --yes",
            "srm failover run --operation failback --topic Payments --fence acl",
        ),
        release=_moves(
            "failover:release",
            "End the hold of a move that was interrupted: clients continue where they were.",
            "srm failover release failover-1a2b3c",
        ),
        status=_moves(
            "failover:status",
            "List all moves, or look how far one is and what it waits for.",
            "srm failover status",
            "srm failover status failover-1a2b3c --watch",
        ),
        redirect=_moves(
            "failover:redirect",
            "Call the redirectors that have not confirmed what is in force for the clients of a "
            "move.",
            "srm failover redirect failover-1a2b3c",
        ),
        unfence=_moves(
            "failover:unfence",
            "Let everybody write again to topics that moves with fence = acl have closed on a "
            "cluster.",
            "srm failover unfence P --topic Payments",
        ),
        drill=_moves(
            "evidence:drill",
            "Rehearse a failover on shadow names of the groups; no client notices.",
            "srm failover drill --group billing",
            "srm failover drill --history",
        ),
        report=_group(
            "Show, list, export or check reports of moves; report MOVE_ID is short for show.",
            "show",
            show=_moves(
                "evidence:show",
                "Show the report of a move; while its source is watched, look there again first.",
                "srm failover report show failover-1a2b3c --format html",
                "srm failover report --list --output reports",
            ),
            verify=_moves(
                "evidence:verify",
                "Verify signatures of reports; several of one move must form a chain.",
                "srm failover report verify reports/failover-1a2b3c.r1.json --public-key key.pem",
            ),
        ),
    ),
    "return": _group(
        "Inspect the recovered source of a paused flow, and resume the flow.",
        status=_moves(
            "recovery:status",
            "Show the shape of the return, and what the source holds that the target does not.",
            "srm return status --flow P:B",
        ),
        settle=_moves(
            "recovery:settle",
            "Decide what becomes of the residue, topic by topic, and resume the flow.",
            "srm return settle --flow P:B --merge Payments --default keep --dry-run",
        ),
    ),
    "residue": _group(
        "Records that only the returned source of a paused flow has.",
        list=_moves(
            "recovery:list_ranges",
            "List the ranges: those to be decided while the flow is paused, and what was left.",
            "srm residue list --flow P:B",
        ),
        show=_moves(
            "recovery:show",
            "Print records, oldest offset first: what is UTF-8 as text, other bytes in base64.",
            "srm residue show --flow P:B --topic Payments --limit 10",
        ),
        export=_moves(
            "recovery:export",
            "Write records to files, one for each partition; an existing file is complete.",
            "srm residue export --flow P:B --format parquet --output residue",
        ),
    ),
    "restore": _moves(
        "recovery:restore",
        "Copy remote topics back to their original cluster, which was rebuilt and is empty.",
        "srm restore --from B --to P --dry-run",
    ),
    "follow": _moves(
        "follow:follow",
        "Run a program, and follow the route of its group or its topics for it.",
        "srm follow --group billing --topic Payments -- ./billing --verbose",
        "srm follow --producer --topic Payments --properties out.properties -- java -jar app.jar",
    ),
    "schema": Entry(
        "Print the JSON schema of what a command prints with --json; without one list the "
        "commands.",
        "srm.cli.schemas:schema",
        ("srm schema failover plan", "srm schema status > status.schema.json"),
    ),
    "completion": Entry(
        "Print the completion of a shell for srm and srm-control: commands, flows and names.",
        "srm.cli.completing:completion",
        (
            'eval "$(srm completion bash)"',
            "srm completion fish > ~/.config/fish/completions/srm.fish",
        ),
    ),
}

CONTROL: Final[Mapping[str, Entry]] = {
    "topics": _flows(
        "control:topics",
        "Which topics of the source are copied; denied ones never are.",
        "srm-control topics --source P --target B --list",
        "srm-control topics --source P --target B --add 'Payments.*,Refunds'",
    ),
    "groups": _flows(
        "control:groups",
        "Which consumer groups of the source can continue on the target.",
        "srm-control groups --source P --target B --add billing --remove-blacklist audit",
    ),
    "reverse-checkpointed-topics": _flows(
        "control:reverse_checkpointed_topics",
        "Remote topics whose progress is carried back: --source BACKUP --target PRIMARY --add "
        "PRIMARY.TOPIC.",
        "srm-control reverse-checkpointed-topics --source B --target P --add P.Payments",
    ),
    "offsets": _flows(
        "control:offsets",
        "Export where groups would continue on the target; works while the source is down.",
        "srm-control offsets --source P --target B --export --group billing > offsets.csv",
    ),
}

SERVICE: Final[Mapping[str, Entry]] = {
    "password": _flows(
        "service:password",
        "Print a user's line for the file of service.users.location; prompts for the password.",
        "srm-service password alice --group operators",
    ),
}
