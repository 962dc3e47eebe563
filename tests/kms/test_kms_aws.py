"""AWS KMS: which key may be named, who may answer, and what each failure is."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from uuid import UUID

import boto3
import botocore
import pytest

from catalog.crypto.secret import SecretBytes
from catalog.kms.aws import AwsKms
from catalog.kms.interface import KeyContext
from catalog.kms.registry import load_kms
from catalog.settings.kms_options import AwsKmsOptions
from policy.errors import DecryptionRefused, KeyNotUsable, KmsUnavailable, LakewardenError, PropertyInvalid
from tests.support.canned_server import Canned, canned_server
from tests.support.documented_kms import PAGE
from tests.support.moto_kms import ACCOUNT, MotoKms, moto_kms
from tests.support.moto_server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY
from tests.support.vectors import each_row

CONTEXT = KeyContext("prod", UUID(int=1))
KEY_ARN = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/0f0f0f0f-0000-4000-8000-000000000000"
ELSEWHERE = "999999999999"


@pytest.fixture(scope="module")
def moto() -> Iterator[MotoKms]:
    with moto_kms() as server:
        yield server


@pytest.fixture
def canned() -> Iterator[Canned]:
    with canned_server() as server:
        yield server


@pytest.fixture
def of_account(canned: Canned) -> AwsKms:
    """A client of the canned server that may name keys of the account by ARN."""
    return canned_client(canned, accounts=[ACCOUNT])


def canned_client(server: Canned, **others: object) -> AwsKms:
    given = {
        "region": REGION,
        "endpoint": server.url,
        "access_key_id": ACCESS_KEY_ID,
        "secret_access_key": SECRET_ACCESS_KEY,
    }
    return AwsKms.connect(AwsKmsOptions.model_validate({**given, **others}))


def wrapped_under(
    name: str, key_id: str = "0f0f0f0f-0000-4000-8000-000000000000", blob: bytes = b"x"
) -> bytes:
    head = bytes([1, len(name)]) + name.encode() + bytes([len(key_id)]) + key_id.encode()
    return head + blob


def asked_nothing(server: Canned, name: str, client: AwsKms) -> None:
    with pytest.raises(KeyNotUsable):
        client.create_key(name, 32, CONTEXT)
    for call in (
        lambda data: client.get_key(data, CONTEXT),
        lambda data: client.rewrap_keys([(data, CONTEXT)]),
    ):
        with pytest.raises((KeyNotUsable, DecryptionRefused)):
            call(wrapped_under(name))
    assert server.asked == []


@each_row(
    "name",
    [
        f"arn:aws:kms:{REGION}:{ELSEWHERE}:key/0f0f0f0f-0000-4000-8000-000000000000",
        f"arn:aws:kms:{REGION}:{ELSEWHERE}:alias/lake",
        f"arn:aws:kms:eu-west-3:{ACCOUNT}:alias/lake",
        f"arn:aws:kms:attacker.example/:{ACCOUNT}:alias/lake",
        f"arn:aws:s3:{REGION}:{ACCOUNT}:alias/lake",
        f"arn:aws:kms:{REGION}:{ACCOUNT}:alias/../lake ",
        "alias/",
        "alias/a b",
    ],
)
def test_keys_of_other_accounts_and_regions_are_never_asked_for(canned, of_account, name):
    asked_nothing(canned, name, of_account)


@pytest.mark.nightly
def test_arns_are_refused_unless_their_account_is_listed(moto, canned):
    asked_nothing(canned, moto.arn(moto.lake), canned_client(canned))
    client = AwsKms.connect(moto.options(accounts=ACCOUNT))
    alias_arn = f"arn:aws:kms:{REGION}:{ACCOUNT}:{moto.lake}"
    for name in (moto.arn(moto.lake), alias_arn, moto.key_id(moto.lake), moto.lake):
        wrapped, key = client.create_key(name, 32, CONTEXT)
        assert client.get_key(wrapped, CONTEXT) == key
        (moved,) = client.rewrap_keys([(wrapped, CONTEXT)])
        assert client.get_key(moved, CONTEXT) == key


@pytest.mark.nightly
def test_alias_that_points_to_a_new_key_opens_old_ones_and_moves_them(moto):
    client = AwsKms.connect(moto.options())
    alias = f"{moto.lake}-moving"
    first = moto.create(alias)
    old, key = client.create_key(alias, 32, CONTEXT)
    second = moto.admin.create_key()["KeyMetadata"]["KeyId"]
    moto.admin.update_alias(AliasName=alias, TargetKeyId=second)
    assert client.get_key(old, CONTEXT) == key
    (moved,) = client.rewrap_keys([(old, CONTEXT)])
    assert first.encode() in old and second.encode() in moved
    moto.admin.disable_key(KeyId=first)
    assert client.get_key(moved, CONTEXT) == key
    with pytest.raises(KeyNotUsable):
        client.get_key(old, CONTEXT)


def test_blob_of_another_master_key_does_not_open_under_this_ones_name(moto):
    client = AwsKms.connect(moto.options())
    mine, _ = client.create_key(moto.lake, 32, CONTEXT)
    other, _ = client.create_key(moto.pii, 32, CONTEXT)
    blob = other[len(wrapped_under(moto.pii, moto.key_id(moto.pii), b"")) :]
    head = mine[: len(wrapped_under(moto.lake, moto.key_id(moto.lake), b""))]
    for call in (client.get_key, lambda data, context: client.rewrap_keys([(data, context)])):
        with pytest.raises(DecryptionRefused):
            call(head + blob, CONTEXT)


@pytest.mark.nightly
def test_key_pending_deletion_is_not_usable(moto):
    client = AwsKms.connect(moto.options())
    alias = f"{moto.lake}-leaving"
    key_id = moto.create(alias)
    wrapped, _ = client.create_key(alias, 32, CONTEXT)
    moto.admin.schedule_key_deletion(KeyId=key_id, PendingWindowInDays=7)
    with pytest.raises(KeyNotUsable):
        client.get_key(wrapped, CONTEXT)
    with pytest.raises(KeyNotUsable):
        client.create_key(alias, 32, CONTEXT)


def test_calls_carry_the_documented_context_and_ask_for_one_key(canned):
    client = canned_client(canned)
    answer = {"KeyId": KEY_ARN, "Plaintext": base64.b64encode(bytes(32)).decode(), "CiphertextBlob": "eHl6"}
    canned.says(200, answer)
    wrapped, _ = client.create_key("alias/lake", 32, CONTEXT)
    client.get_key(wrapped, CONTEXT)
    canned.says(200, {**answer, "SourceKeyId": KEY_ARN})
    client.rewrap_keys([(wrapped, CONTEXT)])
    asked = [(each.headers["x-amz-target"], json.loads(each.body)) for each in canned.asked]
    context = {"catalog": "prod", "table": str(CONTEXT.table_uuid), "master-key": "alias/lake"}
    key_id = KEY_ARN.rpartition("/")[2]
    assert asked == [
        (
            "TrentService.GenerateDataKey",
            {"KeyId": "alias/lake", "NumberOfBytes": 32, "EncryptionContext": context},
        ),
        ("TrentService.Decrypt", {"KeyId": key_id, "CiphertextBlob": "eHl6", "EncryptionContext": context}),
        (
            "TrentService.ReEncrypt",
            {
                "CiphertextBlob": "eHl6",
                "SourceKeyId": key_id,
                "SourceEncryptionContext": context,
                "DestinationKeyId": "alias/lake",
                "DestinationEncryptionContext": context,
            },
        ),
    ]


@pytest.mark.nightly
def test_answer_by_another_key_than_was_asked_for_is_refused(canned):
    client = canned_client(canned)
    other = KEY_ARN.replace("0f0f0f0f", "1f1f1f1f")
    answer = {"Plaintext": base64.b64encode(bytes(32)).decode(), "CiphertextBlob": "eHl6"}
    canned.says(200, {**answer, "KeyId": other, "SourceKeyId": other})
    with pytest.raises(DecryptionRefused):
        client.get_key(wrapped_under("alias/lake"), CONTEXT)
    with pytest.raises(DecryptionRefused):
        client.rewrap_keys([(wrapped_under("alias/lake"), CONTEXT)])


GOOD = {
    "KeyId": KEY_ARN,
    "SourceKeyId": KEY_ARN,
    "Plaintext": base64.b64encode(bytes(32)).decode(),
    "CiphertextBlob": "eHl6",
}


@each_row(
    "answer",
    [
        "",
        "{",
        "[]",
        "<html>",
        {},
        {**GOOD, "Plaintext": base64.b64encode(bytes(31)).decode(), "CiphertextBlob": ""},
        {**GOOD, "Plaintext": "", "CiphertextBlob": base64.b64encode(bytes(6145)).decode()},
        {**GOOD, "Plaintext": "***", "CiphertextBlob": "***"},
        {**GOOD, "KeyId": "alias/lake", "SourceKeyId": "x"},
    ],
)
def test_malformed_answer_is_no_answer(canned, of_account, answer):
    canned.says(200, answer)
    for call in (
        lambda: of_account.create_key("alias/lake", 32, CONTEXT),
        lambda: of_account.get_key(wrapped_under("alias/lake"), CONTEXT),
        lambda: of_account.rewrap_keys([(wrapped_under("alias/lake"), CONTEXT)]),
    ):
        with pytest.raises(KmsUnavailable):
            call()


def documented_errors() -> set[str]:
    """Every error that AWS's own model lists for the operations used here."""
    client = boto3.client("kms", region_name=REGION)
    operations = ("GenerateDataKey", "Decrypt", "ReEncrypt")
    shapes = [client.meta.service_model.operation_model(name).error_shapes for name in operations]
    return {shape.name for each in shapes for shape in each}


MEANT = {
    DecryptionRefused: {"InvalidCiphertextException", "IncorrectKeyException"},
    KeyNotUsable: {
        "AccessDeniedException",
        "DisabledException",
        "InvalidArnException",
        "InvalidKeyUsageException",
        "KMSInvalidStateException",
        "NotFoundException",
        "UnsupportedOperationException",
        "ValidationException",
    },
    KmsUnavailable: {
        "DependencyTimeoutException",
        "DryRunOperationException",
        "ExpiredTokenException",
        "InternalFailure",
        "InvalidClientTokenId",
        "InvalidGrantTokenException",
        "InvalidSignatureException",
        "KMSInternalException",
        "KeyUnavailableException",
        "LimitExceededException",
        "RequestExpired",
        "ServiceUnavailable",
        "ThrottlingException",
        "UnrecognizedClientException",
    },
}


def test_every_error_that_aws_documents_means_something_here(canned):
    assert documented_errors() <= set().union(*MEANT.values())
    client = canned_client(canned)
    for kind, codes in MEANT.items():
        for code in sorted(codes):
            canned.asked.clear()
            canned.says(500 if code in ("InternalFailure", "ServiceUnavailable") else 400, {"__type": code})
            with pytest.raises(kind) as caught:
                client.get_key(wrapped_under("alias/lake"), CONTEXT)
            assert type(caught.value) is kind
            assert len(canned.asked) == 1, "an attempt is one request"


@pytest.mark.nightly
def test_hanging_and_absent_kms_is_unavailable_after_one_bounded_attempt(canned):
    client = canned_client(canned, request_timeout_s=0.2)
    canned.hold.clear()
    with pytest.raises(KmsUnavailable, match="ReadTimeout"):
        client.get_key(wrapped_under("alias/lake"), CONTEXT)
    assert len(canned.asked) == 1
    with pytest.raises(KmsUnavailable):
        canned_client(canned, endpoint="http://127.0.0.1:9").create_key("alias/lake", 32, CONTEXT)


@pytest.mark.nightly
def test_without_tls_no_proxy_of_the_environment_is_asked(canned, monkeypatch):
    with canned_server() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        for endpoint in (canned.url, canned.url.replace("127.0.0.1", "localhost")):
            with pytest.raises(LakewardenError):
                canned_client(canned, endpoint=endpoint).create_key("alias/lake", 32, CONTEXT)
        monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", canned.url)
        with pytest.raises(LakewardenError):
            canned_client(canned, endpoint=None).create_key("alias/lake", 32, CONTEXT)
        assert proxy.asked == []
    assert len(canned.asked) == 3


@pytest.mark.nightly
def test_many_keys_are_rewrapped_in_their_order(moto):
    client = AwsKms.connect(moto.options())
    made = [client.create_key(name, 32, CONTEXT) for name in (moto.lake, moto.pii) * 10]
    moved = client.rewrap_keys([(each.wrapped, CONTEXT) for each in made])
    assert [client.get_key(wrapped, CONTEXT) for wrapped in moved] == [each.key for each in made]


@pytest.mark.nightly
def test_first_failure_ends_a_rewrap_of_many_keys(canned):
    client = canned_client(canned)
    canned.says(400, {"__type": "DisabledException"})
    with pytest.raises(KeyNotUsable):
        client.rewrap_keys([(wrapped_under("alias/lake"), CONTEXT)] * 1000)
    assert len(canned.asked) < 500


def test_missing_credentials_are_an_outage(canned, monkeypatch, tmp_path):
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    client = canned_client(canned, access_key_id=None, secret_access_key=None)
    with pytest.raises(KmsUnavailable, match="NoCredentials"):
        client.create_key("alias/lake", 32, CONTEXT)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    canned.says(200, GOOD)
    found = canned_client(canned, access_key_id=None, secret_access_key=None)
    assert len(found.create_key("alias/lake", 32, CONTEXT).key) == 32


def test_wrong_options_are_refused_without_their_values(monkeypatch):
    for options in (
        {"region": REGION, "endpoint": "http://kms.example"},
        {"region": REGION, "endpoint": "https://a:hush@kms.example"},
        {"region": REGION, "endpoint": "ftp://127.0.0.1"},
        {"region": REGION, "access_key_id": "hush"},
        {"region": REGION, "accounts": "hush"},
        {"region": REGION, "profile": "hush-is-absent"},
        {"region": REGION, "request_timeout_s": 600.0},
        {"region": "no region"},
        {"region": REGION, "secret": SecretBytes(b"hush")},
    ):
        with pytest.raises(PropertyInvalid) as caught:
            load_kms("aws", options)
        assert "hush" not in str(caught.value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", "http://kms.example")
    with pytest.raises(PropertyInvalid, match="https"):
        load_kms("aws", {"region": REGION})


@pytest.mark.nightly
def test_debug_log_of_the_library_shows_no_key_and_no_session_token(moto, caplog, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_ACCESS_KEY)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session-token-of-this-test")
    with caplog.at_level(logging.DEBUG):
        client = AwsKms.connect(moto.options(access_key_id=None, secret_access_key=None))
        wrapped, key = client.create_key(moto.lake, 32, CONTEXT)
        client.get_key(wrapped, CONTEXT)
        with pytest.raises(DecryptionRefused):
            client.get_key(wrapped, KeyContext("test", CONTEXT.table_uuid))
    assert botocore.__name__ in {record.name.partition(".")[0] for record in caplog.records}
    assert base64.b64encode(key.reveal()).decode() not in caplog.text
    assert "session-token-of-this-test" not in caplog.text
    assert SECRET_ACCESS_KEY not in caplog.text


def test_documented_permissions_are_those_of_the_calls():
    policy = json.loads(PAGE.partition("```json\n")[2].partition("```")[0])
    (statement,) = policy["Statement"]
    used = {"kms:GenerateDataKey", "kms:Encrypt", "kms:Decrypt", "kms:ReEncryptFrom", "kms:ReEncryptTo"}
    assert set(statement["Action"]) == used
    assert set(statement["Condition"]["StringEquals"]) == {"kms:EncryptionContext:catalog"}
