"""How the run is watched: ``--log_format``, metrics, commands and webhooks, as one ``View``."""

import importlib.util
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from faultrun.cli.options.settings import Settings
from faultrun.cli.options.values import switch, whole
from faultrun.cli.resolve.run_ids import in_pod
from faultrun.errors import UsageError
from faultrun.model.spec import LogFormat, View
from faultrun.platforms import local

_NONE = ("", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extra:
    """An optional part of faultrun: what it is for, its module, its distribution, the name of the extra."""

    what: str
    module: str
    distribution: str
    name: str


_PROMETHEUS = _Extra(
    what="metrics are", module="prometheus_client", distribution="prometheus-client", name="metrics"
)
_TENSORBOARD = _Extra(
    what="scalars are", module="tensorboard", distribution="tensorboard", name="tensorboard"
)
_OTEL = _Extra(
    what="traces are",
    module="opentelemetry.exporter.otlp.proto.http",
    distribution="opentelemetry-exporter-otlp-proto-http",
    name="otel",
)


def resolve_view(settings: Settings, environ: Mapping[str, str]) -> View:
    """Settle the options of "Watching the run"; raises UsageError (ConfigError) for what cannot work."""
    plain = View()
    port = settings.read("metrics_port", _port)
    file = settings.read("metrics_file", _file) or ""
    tensorboard = settings.read("tensorboard", _text) or ""
    otlp_endpoint = settings.read("otlp_endpoint", _collector) or ""
    if port is not None or file:
        _need(settings, "metrics_port" if port is not None else "metrics_file", _PROMETHEUS)
    if tensorboard:
        _need(settings, "tensorboard", _TENSORBOARD)
    if otlp_endpoint:
        _need(settings, "otlp_endpoint", _OTEL)
    own = local.every_address() if in_pod(environ) else plain.metrics_addr
    addr = settings.read("metrics_addr", _address) or own
    if port is not None:
        _need_free(settings, addr, port)
    live, report = settings.read("live_line", switch), settings.read("report", switch)
    return View(
        log_format=settings.read("log_format", _format) or plain.log_format,
        live_line=plain.live_line if live is None else live,
        report=plain.report if report is None else report,
        metrics_port=port,
        metrics_addr=addr,
        metrics_file=file,
        tensorboard=tensorboard,
        otlp_endpoint=otlp_endpoint,
        on_event=settings.read("on_event", _text) or "",
        webhook=settings.read("webhook", _url) or "",
    )


def _format(text: str) -> LogFormat:
    known = [one.value for one in LogFormat]
    if text not in known:
        raise ValueError(f"{text!r} is none of {', '.join(known)}")
    return LogFormat(text)


def _port(text: str) -> int | None:
    return None if text in _NONE else whole(1, 65535)(text)


def _address(text: str) -> str:
    if text not in _NONE and not local.is_address(text):
        raise ValueError(f"{text!r} is no address of IPv4 or IPv6")
    return "" if text in _NONE else text


def _file(text: str) -> str:
    if text in _NONE:
        return ""
    if not text.endswith(".prom"):
        raise ValueError(f"{text!r} does not end in .prom, and node_exporter reads no other file")
    return text


def _text(text: str) -> str:
    return "" if text in _NONE else text


def _url(text: str) -> str:
    if text in _NONE:
        return ""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("a webhook is http://HOST/... or https://HOST/...")
    return text


def _collector(text: str) -> str:
    """The whole address: a collector takes traces at /v1/traces unless another path is given."""
    if text in _NONE:
        return ""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("a collector is http://HOST:4318 or https://HOST/...; gRPC is not spoken")
    return text if parts.path.strip("/") else urlunsplit(parts._replace(path="/v1/traces"))


def _need(settings: Settings, option: str, extra: _Extra) -> None:
    with suppress(ModuleNotFoundError):
        if importlib.util.find_spec(extra.module) is not None:
            return
    raise UsageError(
        f"{settings.where(option)} needs {extra.distribution}, which is not installed",
        because=f"{extra.what} an extra of faultrun",
        hint=f"pip install 'faultrun[{extra.name}]'",
    )


def _need_free(settings: Settings, addr: str, port: int) -> None:
    """Somebody who asked for metrics shall not find out later that there are none."""
    with socket.socket(socket.AF_INET6 if ":" in addr else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((addr, port))
        except OSError as error:
            raise UsageError(
                f"{settings.where('metrics_port')}: port {port} cannot be used",
                because=f"{addr}: {error.strerror}",
                hint="another port, or --metrics_file=FILE.prom",
            ) from error
