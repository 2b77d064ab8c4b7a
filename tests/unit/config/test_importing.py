"""Connectors of MirrorMaker 2 become a properties file."""

from __future__ import annotations

from srm.config.new_file import render, sections_of


def test_two_passwords_that_differ_are_named_without_their_values() -> None:
    connectors = [
        {
            "name": name,
            "config": {
                "connector.class": f"org.apache.kafka.connect.mirror.{kind}",
                "source.cluster.alias": "P",
                "target.cluster.alias": "B",
                "source.cluster.bootstrap.servers": "p:9092",
                "target.cluster.bootstrap.servers": "b:9092",
                "source.cluster.ssl.key.password": password,
                "source.cluster.ssl.keystore.location": "/etc/p.p12",
            },
        }
        for name, kind, password in (
            ("source", "MirrorSourceConnector", "first-secret"),
            ("checkpoint", "MirrorCheckpointConnector", "other-secret"),
        )
    ]

    text = render(sections_of(connectors, "two files"), "srm.properties")

    assert "P.ssl.key.password: two values, [hidden] is used, not [hidden]" in text
    assert "-secret" not in text
