"""Sign-in, sessions that refresh themselves, the second factor, and the other resources."""

import asyncio
import base64
import hmac
import json
import os
import re
import struct
import time
from pathlib import Path

import httpx
import pytest
from support import until

import sandgate
from sandgate import AsyncSandgate, Sandgate, errors, records

ADMIN = {"username": os.environ["ADMIN_USERNAME"], "password": os.environ["ADMIN_PASSWORD"]}


@pytest.fixture
def admin():
    with Sandgate.sign_in(**ADMIN) as client:
        yield client


def test_resources(admin):
    made = admin.api_tokens.create(description="from python", permissions=["read"])
    assert isinstance(made, records.CreatedApiToken)
    assert made.id in [each.id for each in admin.api_tokens.list(limit=1)]
    with Sandgate(token=made.token) as limited:
        pytest.raises(errors.Forbidden, limited.workspaces.create, name="not allowed")
    admin.api_tokens.delete(made.id)
    assert made.id not in [each.id for each in admin.api_tokens.list()]
    own = admin.workspaces.create(name="of python")
    assert admin.workspaces.update(own.id, name="renamed").name == "renamed"
    assert admin.workspaces.get(own.id).role == "owner"
    with admin.for_workspace("renamed") as inside:
        assert inside.workspace_id() == own.id
        assert [member.role for member in inside.members.list()] == ["owner"]
        image = inside.images.create(name="mine", image="docker.io/library/busybox:1", memory_mb=256)
        assert inside.images.update(image.id, enabled=False).enabled is False
        assert inside.images.get(image.id).memory_mb == 256
        assert image.id not in [each.id for each in inside.images.list(enabled_only=True)]
        inside.images.delete(image.id)
        assert list(inside.registries.list()) == []

        def is_recorded():
            # Entries follow what they record.
            assert "image.create" in [entry.action for entry in inside.audit_log.list(limit=1)]
            assert [entry.outcome for entry in inside.audit_log.list(action="image.delete")] == ["success"]

        until(is_recorded)
        pytest.raises(errors.MemberNotFound, inside.members.create, username="nobody@example.com", role="member")
    admin.workspaces.delete(own.id)
    pytest.raises(errors.SandgateError, admin.workspaces.get, own.id)
    assert "default" in [image.name for image in admin.images.list(limit=1)]
    invalid = pytest.raises(errors.ValidationError, admin.images.create, name="", image="x").value
    assert "body.name" in [detail["field"] for detail in invalid.details]
    assert admin.url == os.environ["SANDGATE_URL"]


def test_what_operators_do(admin):
    assert ADMIN["username"] in [user.username for user in admin.admin.list_users()]
    assert next(admin.admin.list_audit_log()).action
    assert isinstance([*admin.admin.list_sandboxes(state="ready")], list)


def test_a_session_goes_on_before_it_expires_and_after_it_was_refused(monkeypatch):
    told = []
    client = Sandgate.sign_in(**ADMIN, on_refresh=told.append)
    assert client.account.get().credential == "session" and len(told) == 1
    monkeypatch.setattr(sandgate._sync.session, "MARGIN_SECONDS", 1_000)
    assert client.account.get().username == ADMIN["username"]
    assert len(told) == 2 and told[0].refresh_token != told[1].refresh_token
    monkeypatch.undo()
    client.account.get()
    assert len(told) == 2
    # A token that is no longer valid.
    client._http.settings.token._tokens["access_token"] = "refused"
    client.account.get()
    assert len(told) == 3
    assert [each.current for each in client.sessions.list()].count(True) == 1
    client.sessions.sign_out(told[-1].refresh_token)
    pytest.raises(errors.InvalidToken, client.account.get)
    client.close()


def test_requests_at_once_wait_for_one_refresh():
    asyncio.run(refresh_at_once())


async def refresh_at_once():
    told = []
    async with await AsyncSandgate.sign_in(**ADMIN, on_refresh=told.append) as client:
        client._http.settings.token._expires_at = 0
        await asyncio.gather(*(client.account.get() for _ in range(10)))
        assert len(told) == 2


def test_what_the_command_line_stored_is_used_at_its_own_address_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("SANDGATE_CONFIG", str(tmp_path / "login.json"))
    stored = {"url": os.environ["SANDGATE_URL"] + "/", "token": os.environ["SANDGATE_TOKEN"]}
    (tmp_path / "login.json").write_text(json.dumps(stored))
    monkeypatch.delenv("SANDGATE_TOKEN")
    monkeypatch.delenv("SANDGATE_URL")
    with Sandgate() as client:
        assert client.account.get().credential == "api_token"
    with Sandgate(url="http://127.0.0.1:1") as elsewhere:
        assert elsewhere._http.settings.token is None
    (tmp_path / "login.json").write_text("{")
    assert "sandgate login" in pytest.raises(errors.BadSettings, Sandgate).value.hint


def test_an_account_with_a_second_factor_is_made_and_deleted():
    user = {"username": f"python-{time.time_ns()}@example.com", "password": "a long passphrase of python"}
    with Sandgate() as anonymous:
        anonymous.account.register(**user)
        token = until(lambda: find_token(user["username"]))
        anonymous.account.verify_email(token=token, password=user["password"])
    with Sandgate.sign_in(**user) as client:
        made = client.second_factor.create(password=user["password"])
        codes = client.second_factor.confirm(code_of(made.secret))
        assert client.second_factor.get().recovery_codes_left == len(codes)
    refused = pytest.raises(errors.InvalidCredentials, Sandgate.sign_in, **user).value
    assert "body.otp" in [detail["field"] for detail in refused.details]
    with Sandgate.sign_in(**user, otp=codes[0]) as client:
        assert client.account.get().has_second_factor
        client.second_factor.delete(password=user["password"], otp=codes[1])
        client.account.delete(password=user["password"])
    pytest.raises(errors.InvalidCredentials, Sandgate.sign_in, **user)


def test_each_code_of_the_api_has_its_class():
    document = httpx.get(os.environ["SANDGATE_URL"] + "/openapi.json").json()
    codes = document["components"]["schemas"]["ErrorBody"]["properties"]["code"]["enum"]
    assert set(errors.classes) == set(codes)
    assert all(kind.__name__ in sandgate.__all__ for kind in errors.classes.values())
    assert len(set(errors.classes.values())) == len(codes)


def find_token(username):
    """The token that a mail has for a user."""
    for mail in Path(os.environ["MAIL_FOLDER"]).glob("*.eml"):
        text = mail.read_text()
        found = re.search(r"token=(?:3D)?([\w-]+)", text.replace("=\r\n", "").replace("=\n", ""))
        if username in text and found:
            return found[1]
    raise AssertionError("no mail has come")


def code_of(secret):
    """What an authenticator app shows now (RFC 6238)."""
    key = base64.b32decode(secret + "=" * (-len(secret) % 8))
    digest = hmac.digest(key, struct.pack(">Q", int(time.time()) // 30), "sha1")
    at = digest[-1] & 15
    return f"{(struct.unpack('>I', digest[at : at + 4])[0] & 0x7FFFFFFF) % 1_000_000:06}"
