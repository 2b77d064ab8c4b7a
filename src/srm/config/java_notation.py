"""Connection settings in librdkafka's notation, turned into that of the Java clients.

The way back from :mod:`srm.config.security`; what Java clients have no word for is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

_ALIKE: Final = (
    "bootstrap.servers",
    "client.dns.lookup",
    "sasl.kerberos.service.name",
    "sasl.oauthbearer.token.endpoint.url",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.password",
)
_LOGIN: Final = "org.apache.kafka.common.security"
_TOKENS: Final = f"{_LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler"
_OPTIONS: Final = {
    "sasl.oauthbearer.client.id": "clientId",
    "sasl.oauthbearer.client.secret": "clientSecret",
    "sasl.oauthbearer.scope": "scope",
}


def java_settings(settings: Mapping[str, str], read: Callable[[str], str]) -> dict[str, str]:
    """Return librdkafka's settings as a Java client takes them; ``read`` returns a file's text."""
    java = {name: settings[name] for name in _ALIKE if name in settings}
    if protocol := settings.get("security.protocol"):
        java["security.protocol"] = protocol.upper()
    if (verify := settings.get("ssl.endpoint.identification.algorithm")) is not None:
        java["ssl.endpoint.identification.algorithm"] = "" if verify == "none" else verify
    java |= _truststore(settings)
    java |= _keystore(settings, read)
    java |= _login(settings)
    return java


def _truststore(settings: Mapping[str, str]) -> dict[str, str]:
    if "ssl.ca.pem" in settings:
        return {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": settings["ssl.ca.pem"],
        }
    if "ssl.ca.location" in settings:
        return {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": settings["ssl.ca.location"],
        }
    return {}


def _keystore(settings: Mapping[str, str], read: Callable[[str], str]) -> dict[str, str]:
    if "ssl.keystore.location" in settings:
        return {"ssl.keystore.type": "PKCS12"}
    key, certificate = settings.get("ssl.key.location"), settings.get("ssl.certificate.location")
    if key is not None and key == certificate:
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": key}
    key_text = settings.get("ssl.key.pem") or (read(key) if key else None)
    chain = settings.get("ssl.certificate.pem") or (read(certificate) if certificate else None)
    if key_text is None or chain is None:
        return {}
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key_text,
        "ssl.keystore.certificate.chain": chain,
    }


def _login(settings: Mapping[str, str]) -> dict[str, str]:
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", ""))
    if not mechanism:
        return {}
    java = {"sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        options = {ours: settings[name] for name, ours in _OPTIONS.items() if name in settings}
        pairs = settings.get("sasl.oauthbearer.extensions", "").split(",")
        options |= {
            f"extension_{n}": v for n, found, v in (p.partition("=") for p in pairs) if found
        }
        java["sasl.login.callback.handler.class"] = _TOKENS
        java["sasl.jaas.config"] = _jaas("oauthbearer.OAuthBearerLoginModule", options)
    elif "sasl.username" in settings:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        login = {name: settings.get(f"sasl.{name}", "") for name in ("username", "password")}
        java["sasl.jaas.config"] = _jaas(module, login)
    return java


def _jaas(module: str, options: Mapping[str, str]) -> str:
    given = "".join(f" {name}={_quote(value)}" for name, value in options.items())
    return f"{_LOGIN}.{module} required{given};"


def _quote(value: str) -> str:
    text = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
