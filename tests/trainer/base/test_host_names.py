"""Under which names a server answers, and what it says to a request for another one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.trainer.base import host_names

pytestmark = pytest.mark.pure

OWN_HOSTS = (
    "localhost",
    "localhost:3000",
    "LOCALHOST",
    "localhost.",
    "127.0.0.1",
    "127.0.0.1:7310",
    "[::1]",
    "[::1]:80",
    "10.1.2.3:3000",
    "ui.example",
    "UI.example:443",
)
FOREIGN_HOSTS = (
    "evil.example",
    "evil.example:7310",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "0.0.0.0:3000",
    "10.1.2.4",
    "",
    "a@localhost",
    "localhost/x",
    "[localhost]",
    "localhost:80:80",
    "::1",
    "ui.example.evil",
    "\xff",
)


def test_a_server_answers_as_this_machine_by_the_address_it_was_reached_at_and_by_the_names_in_the_settings():
    names = host_names.named({"SLIPWAY_HOSTS": " UI.example , slipway-webserver.slipway.svc."})
    assert names == {"ui.example", "slipway-webserver.slipway.svc"}
    assert [host for host in OWN_HOSTS if host_names.refusal([host], "10.1.2.3", names)] == []
    assert host_names.refusal(["10.1.2.3"], "::ffff:10.1.2.3", names) == "", "of a socket of both families"
    assert [host for host in FOREIGN_HOSTS if not host_names.refusal([host], "10.1.2.3", names)] == []
    for several in ([], ["localhost", "evil.example"], ["localhost", "localhost"]):
        assert host_names.refusal(several, "127.0.0.1", names)


def test_a_refusal_names_the_host_and_the_setting():
    message = "Host: found 'evil.example', expected localhost, this server's address, or a name in SLIPWAY_HOSTS"
    assert host_names.refusal(["evil.example"], "127.0.0.1", ()).startswith(message)
    assert host_names.refusal([], "127.0.0.1", ()).startswith("Host: found none, expected")


@pytest.mark.parametrize("text", ["http://ui.example", "ui.example:3000", "a b", "*", "ui.example,-x"])
def test_what_is_no_name_is_refused_in_the_settings(text: str):
    with pytest.raises(ValueError, match=r"^SLIPWAY_HOSTS: found '.+', expected names of hosts without a port"):
        host_names.named({"SLIPWAY_HOSTS": text})


@given(st.text(max_size=40))
def test_no_other_text_is_taken_for_this_machine(text: str):
    allowed = not host_names.refusal([text], "127.0.0.1", ())
    assert not allowed or text.lower().startswith(("localhost", "127.", "[")), text
