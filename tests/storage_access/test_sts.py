"""Credentials of AWS STS: for a principal and a time, never shown, kept for half of their time."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from catalog.settings.sections import S3Settings, StsSettings
from catalog.storage_access.credential_cache import CredentialCache
from catalog.storage_access.session_policy import Scope, session_policy
from catalog.storage_access.sts import Credential, TokenService, session_name
from policy.errors import NotAuthorized, PropertyInvalid, StorageUnavailable
from policy.location.location import Location
from tests.support.canned_server import canned_server
from tests.support.guarded_store import ROLE, GuardedStore, guarded_store
from tests.support.moto_server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, MotoS3

_NAMES = st.text(min_size=1, max_size=255).filter(lambda text: not text.isspace())
_ERROR = "<ErrorResponse><Error><Code>{}</Code><Message>secret-of-the-store</Message></Error></ErrorResponse>"


@pytest.fixture(scope="module")
def store(moto: MotoS3) -> Iterator[GuardedStore]:
    with guarded_store(moto) as server:
        yield server


def _service(endpoint: str, **more: str) -> TokenService:
    sts = StsSettings(role_arn=ROLE, endpoint=endpoint, **more)
    s3 = S3Settings(
        endpoint=endpoint,
        region=REGION,
        access_key_id=ACCESS_KEY_ID,
        secret_access_key=SecretStr(SECRET_ACCESS_KEY),
        sts=sts,
    )
    return TokenService.connect(s3, sts)


def test_a_credential_opens_its_prefixes_alone(store: GuardedStore, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bucket = store.s3.new_bucket()
    for key in ("t1/f", "t1/x.metadata.json", "t10/f", "t2/f", "t*/f"):
        store.s3.client.put_object(Bucket=bucket, Key=key, Body=key.encode())
    places = tuple(Location.parse(f"s3://{bucket}/{name}") for name in ("t1", "t*"))
    credential = _service(store.s3.endpoint).issue(session_policy(Scope(places, places[:1])), "ann")
    secrets = (credential.secret_access_key, credential.session_token)
    client = store.client(
        {
            "s3.endpoint": store.s3.endpoint,
            "client.region": REGION,
            "s3.access-key-id": credential.access_key_id,
            "s3.secret-access-key": secrets[0].get_secret_value(),
            "s3.session-token": secrets[1].get_secret_value(),
        }
    )
    assert client.get_object(Bucket=bucket, Key="t1/f")["Body"].read() == b"t1/f"
    assert client.get_object(Bucket=bucket, Key="t*/f")["Body"].read() == b"t*/f"
    client.put_object(Bucket=bucket, Key="t1/g", Body=b"")
    client.delete_object(Bucket=bucket, Key="t1/g")
    listed = client.list_objects_v2(Bucket=bucket, Prefix="t1/")["Contents"]
    assert [each["Key"] for each in listed] == ["t1/f", "t1/x.metadata.json"]
    for call in (
        lambda: client.get_object(Bucket=bucket, Key="t10/f"),
        lambda: client.get_object(Bucket=bucket, Key="t2/f"),
        lambda: client.list_objects_v2(Bucket=bucket),
        lambda: client.list_objects_v2(Bucket=bucket, Prefix="t*/"),
        lambda: client.list_objects_v2(Bucket=bucket, Prefix="t1"),
        lambda: client.put_object(Bucket=bucket, Key="t*/g", Body=b""),
        lambda: client.put_object(Bucket=bucket, Key="t1/x.metadata.json", Body=b""),
        lambda: client.copy_object(Bucket=bucket, Key="t1/g", CopySource=f"{bucket}/t2/f"),
        lambda: client.get_object(Bucket=store.s3.bucket, Key="t1/f"),
        lambda: client.delete_bucket(Bucket=bucket),
        lambda: client.put_object_acl(Bucket=bucket, Key="t1/f", ACL="public-read"),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            call()
    told = f"{credential!r}{caplog.text}"
    assert not any(each.get_secret_value() in told for each in secrets)


@given(_NAMES, _NAMES)
def test_no_two_principals_have_one_session_name(one: str, other: str) -> None:
    names = [session_name(one), session_name(other), session_name(session_name(one))]
    assert all(2 <= len(name) <= 64 and set(name) <= _TAKEN for name in names)
    assert (names[0] == names[1]) == (one == other)
    assert names[2] == names[0] or "=" in names[0]


_TAKEN = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+=,.@-")


def test_the_principal_is_in_the_session_name() -> None:
    assert session_name("ann@example.com") == "ann@example.com"
    assert session_name("ann/eve").startswith("ann_eve=")
    assert (
        len({session_name(each) for each in ("ann/eve", "ann_eve", "ann eve", session_name("ann/eve"))}) == 4
    )


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("PackedPolicyTooLarge", NotAuthorized),
        ("MalformedPolicyDocument", NotAuthorized),
        ("AccessDenied", StorageUnavailable),
        ("RegionDisabledException", StorageUnavailable),
    ],
)
def test_errors_of_sts_have_types_and_tell_nothing(code: str, expected: type[Exception]) -> None:
    with canned_server() as server:
        server.says(400, _ERROR.format(code))
        with pytest.raises(expected, match=code) as refusal:
            _service(server.url).issue("{}", "ann")
    assert refusal.value.__cause__ is None and "secret-of-the-store" not in str(refusal.value)


def test_an_answer_without_a_credential_is_unavailable() -> None:
    with canned_server() as server:
        server.says(200, "<AssumeRoleResponse><AssumeRoleResult/></AssumeRoleResponse>")
        with pytest.raises(StorageUnavailable, match="without a credential"):
            _service(server.url).issue("{}", "ann")
    with pytest.raises(StorageUnavailable, match="sts"):
        _service("http://127.0.0.1:9").issue("{}", "ann")


def test_the_role_is_assumed_as_the_settings_say() -> None:
    with canned_server() as server, pytest.raises(StorageUnavailable):
        _service(server.url, external_id="lake-1", duration_s=1800).issue("{}", "ann")
    sent = server.asked[0].body.decode()
    for part in ("Action=AssumeRole", "DurationSeconds=1800", "ExternalId=lake-1", "RoleSessionName=ann"):
        assert part in sent


@pytest.mark.parametrize(
    "wrong",
    [
        {"role_arn": "lakewarden"},
        {"role_arn": ROLE, "duration_s": 899},
        {"role_arn": ROLE, "duration_s": 3601},
        {"role_arn": ROLE, "endpoint": "http://sts.example"},
        {"role_arn": ROLE, "external_id": "a b"},
    ],
)
def test_settings_that_sts_would_not_take_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        StsSettings(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"region": None}, {"endpoint": "http://127.0.0.1:9000"}],
    ids=["no-region", "endpoint-of-one-alone"],
)
def test_a_store_is_described_as_a_whole(wrong: dict[str, str | None]) -> None:
    with pytest.raises(ValidationError, match="give "):
        S3Settings(**{"region": REGION, "sts": StsSettings(role_arn=ROLE), **wrong})


def test_an_endpoint_of_the_environment_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://sts.example")
    sts = StsSettings(role_arn=ROLE)
    with pytest.raises(PropertyInvalid, match="not private"):
        TokenService.connect(S3Settings(region=REGION, sts=sts), sts)


def test_a_credential_is_used_for_half_of_its_time() -> None:
    now, issued = [0], []

    def issue() -> Credential:
        issued.append(now[0])
        return Credential("id", SecretStr("s"), SecretStr("t"), now[0] + 900_000)

    cache = CredentialCache(lambda: now[0])
    for now[0] in (0, 1, 449_999, 450_000, 600_000, 899_999, 900_000):
        assert cache.get("table", issue).expires_ms - now[0] >= 450_000
    assert issued == [0, 450_000, 900_000]
    cache.get("other", issue)
    assert len(issued) == 4
