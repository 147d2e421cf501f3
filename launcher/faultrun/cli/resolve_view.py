"""How the run is watched: ``--log_format``, metrics, commands and webhooks, as one ``View``."""

import importlib.util
import socket
from urllib.parse import urlsplit

from faultrun.cli.options_values import switch, whole
from faultrun.cli.settings import Settings
from faultrun.errors import UsageError
from faultrun.model.spec import LogFormat, View

_NONE = ("", "none")


def resolve_view(settings: Settings) -> View:
    """Settle the options of "Watching the run"; raises UsageError (ConfigError) for what cannot work."""
    plain = View()
    port = settings.read("metrics_port", _port)
    file = settings.read("metrics_file", _file) or ""
    if port is not None or file:
        _need_prometheus_client(settings, "metrics_port" if port is not None else "metrics_file")
    if port is not None:
        _need_free(settings, port)
    live, report = settings.read("live_line", switch), settings.read("report", switch)
    return View(
        log_format=settings.read("log_format", _format) or plain.log_format,
        live_line=plain.live_line if live is None else live,
        report=plain.report if report is None else report,
        metrics_port=port,
        metrics_file=file,
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


def _need_prometheus_client(settings: Settings, option: str) -> None:
    if importlib.util.find_spec("prometheus_client") is None:
        raise UsageError(
            f"{settings.where(option)} needs prometheus-client, which is not installed",
            because="metrics are an extra of faultrun",
            hint="pip install 'faultrun[metrics]'",
        )


def _need_free(settings: Settings, port: int) -> None:
    """Somebody who asked for metrics shall not find out later that there are none."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise UsageError(
                f"{settings.where('metrics_port')}: port {port} cannot be used",
                because=str(error.strerror),
                hint="another port, or --metrics_file=FILE.prom",
            ) from error
