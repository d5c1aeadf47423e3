"""A person's browser outside the cluster: cookies, redirects and forms, through an ingress that ends TLS."""

import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookiejar import CookieJar
from typing import Any

PATIENCE_SECONDS = 120


@dataclass(frozen=True)
class Page:
    """What a request led to, after all redirects."""

    status: int
    url: str
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


class Ingress(urllib.request.HTTPSHandler):
    """Takes https://HOST to a port of this machine, as an ingress controller does after it has ended TLS."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        super().__init__()
        self._ports = ports

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Raises KeyError for a host that the ingress does not know."""

        def connection(host: str, **options: Any) -> http.client.HTTPConnection:
            return http.client.HTTPConnection("127.0.0.1", self._ports[host], **options)

        req.add_unredirected_header("X-Forwarded-Proto", "https")
        req.add_unredirected_header("X-Forwarded-For", "203.0.113.9")
        answered: http.client.HTTPResponse = self.do_open(connection, req)
        return answered


class Browser:
    """One person's session. `ports` has the port of each host behind the ingress."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        self._opener = urllib.request.build_opener(Ingress(ports), urllib.request.HTTPCookieProcessor(CookieJar()))

    def ask(self, url: str, form: Mapping[str, str] | None = None, **headers: str) -> Page:
        """Open a page, or send a form to it; a header's underlines are dashes."""
        body = None if form is None else urllib.parse.urlencode(form).encode()
        return self._open(urllib.request.Request(url, body, _dashed(headers)))

    def post(self, url: str, document: object, **headers: str) -> Page:
        """Send a document as JSON."""
        sent = {"Content-Type": "application/json", **_dashed(headers)}
        return self._open(urllib.request.Request(url, json.dumps(document).encode(), sent))

    def sign_in(self, url: str, email: str, password: str) -> Page:
        """Open a page as a stranger, fill in the issuer's form, and go where that leads."""
        form = self.ask(url)
        form_action = re.search(r'<form[^>]*\baction="([^"]*)"', form.text)
        where = urllib.parse.urljoin(form.url, form_action[1].replace("&amp;", "&")) if form_action else form.url
        return self.ask(where, {"login": email, "password": password})

    def _open(self, request: urllib.request.Request) -> Page:
        try:
            with self._opener.open(request, timeout=PATIENCE_SECONDS) as answer:
                return Page(answer.status, answer.url, answer.read().decode())
        except urllib.error.HTTPError as error:
            return Page(error.code, error.url or "", error.read().decode())


def _dashed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
