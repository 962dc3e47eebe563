"""Names of properties that look like a governed one: refused or literal at every door, never without effect.

What a person reads as `encryption.mechanism` is that, or is refused: other letter case, confusable letters,
invisible characters, spaces, other normal forms of Unicode, names that come twice with two values. What no
person takes for a governed name is kept, letter by letter, and means nothing more.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, Final

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.encryption.governed import is_confusable_with, is_governed, split
from policy.errors import PropertyInvalid
from tests.support.host import Host
from tests.support.http_calls import SCHEMA, new_table, refused
from tests.support.lake import ALICE, policy, standard_policies, tables
from tests.support.service import Service, open_service
from tests.support.vectors import each_row

MECHANISM: Final = "encryption.mechanism"
LIST: Final = "read.allowed.data.paths"
UNSEALED: Final = "lakewarden.unsealed"

#: How a name is disguised; what remains is read as the same word.
DISGUISES: Final[dict[str, Callable[[str], str]]] = {
    "capitals": str.upper,
    "one capital": str.capitalize,
    "space before": lambda name: f" {name}",
    "space behind": lambda name: f"{name} ",
    "no-break space": lambda name: f"{name}\u00a0",
    "tab": lambda name: f"{name}\t",
    "zero-width space": lambda name: f"{name[:4]}\u200b{name[4:]}",
    "zero-width joiner": lambda name: f"{name[:4]}\u200d{name[4:]}",
    "soft hyphen": lambda name: f"{name[:4]}\u00ad{name[4:]}",
    "byte order mark": lambda name: f"\ufeff{name}",
    "right to left": lambda name: f"{name}\u200f",
    "variation selector": lambda name: f"{name}\ufe0f",
    "combining mark": lambda name: f"{name[0]}\u0301{name[1:]}",
    "fullwidth letters": lambda name: "".join(chr(ord(c) + 0xFEE0) for c in name),
    "fullwidth letter": lambda name: chr(ord(name[0]) + 0xFEE0) + name[1:],
    "mathematical letters": lambda name: "".join(
        chr(0x1D41A + ord(c) - ord("a")) if c.isalpha() else c for c in name
    ),
    "cyrillic letter": lambda name: name.replace("e", "е").replace("a", "а"),
    "greek letter": lambda name: name.replace("o", "ο").replace("i", "ι").replace("a", "α"),
    "dotless i": lambda name: name.replace("i", "ı").replace("l", "ⅼ"),
    "other dot": lambda name: name.replace(".", "․"),
    "middle dot": lambda name: name.replace(".", "·"),
    "dash for a dot": lambda name: name.replace(".", "-"),
    "underscore for a dot": lambda name: name.replace(".", "_"),
    "no dot": lambda name: name.replace(".", ""),
    "two dots": lambda name: name.replace(".", ".."),
    "a letter too many": lambda name: f"{name}s",
    "a letter too few": lambda name: name[:-1],
    "letters swapped": lambda name: f"{name[:-2]}{name[-1]}{name[-2]}",
    "option in capitals": lambda name: f"OPTION.{name}",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    # Names are tried on an encrypted table too, which standard clients cannot load otherwise.
    with open_service(tmp_path_factory.mktemp("names"), STANDARD_CLIENTS="load") as service:
        catalog = service.lake.catalog(ALICE)
        catalog.create_namespace("db")
        with service.client() as client:
            new_table(client, service.prefix, "db", "plain")
            new_table(client, service.prefix, "db", "vault", properties={MECHANISM: "envelope"})
        yield service


@pytest.fixture(scope="module")
def alice(served: Service) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


def _refused(answer: httpx.Response) -> None:
    """A mistake in the request; whatever else it says, nothing was done."""
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["lakewarden"] in ("PropertyInvalid", "RequestInvalid"), answer.text


def _commit(alice: httpx.Client, served: Service, table: str, *updates: dict[str, Any]) -> httpx.Response:
    url = f"{served.prefix}/namespaces/db/tables/{table}"
    return alice.post(url, json={"requirements": [], "updates": list(updates)})


def _set(**properties: str) -> dict[str, Any]:
    return {"action": "set-properties", "updates": properties}


def _remove(*names: str) -> dict[str, Any]:
    return {"action": "remove-properties", "removals": list(names)}


def _governs(alice: httpx.Client, table: str = "vault") -> dict[str, str]:
    properties: dict[str, str] = alice.get(f"/admin/v1/tables/db/{table}").json()["properties"]
    return properties


@each_row("disguise", DISGUISES)
@each_row("name", [MECHANISM, LIST, "encryption.columns", "parquet.encryption.footer.key"])
def test_disguised_name_is_refused_by_the_rule(name: str, disguise: str) -> None:
    given = DISGUISES[disguise](name)
    assert given != name
    assert is_governed(given)
    with pytest.raises(PropertyInvalid):
        split({given: "envelope"})


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("disguise", DISGUISES)
def test_disguised_name_is_refused_by_every_interface(
    served: Service, alice: httpx.Client, disguise: str
) -> None:
    name = DISGUISES[disguise](MECHANISM)
    before, tables = _governs(alice), alice.get(f"{served.prefix}/namespaces/db/tables").text
    protecting, dropping = {name: "envelope"}, {name: "plaintext"}
    body = {"name": "new", "schema": SCHEMA, "properties": protecting}
    url = f"{served.prefix}/namespaces/db/tables"
    _refused(alice.post(url, json=body))
    _refused(alice.post(url, json=body | {"stage-create": True}))
    _refused(alice.post("/engine/v1/namespaces/db/staged-writes", json=body))
    _refused(_commit(alice, served, "plain", _set(**protecting)))
    _refused(_commit(alice, served, "vault", _set(**dropping)))
    _refused(_commit(alice, served, "vault", _remove(name)))
    for change in (
        {"action": "set-property", "name": name, "value": "plaintext"},
        {"action": "remove-property", "name": name},
    ):
        _refused(alice.post("/engine/v1/tables/db/vault/alter", json={"changes": [change]}))
    _refused(alice.patch("/admin/v1/tables/db/vault", json={"set": dropping}))
    _refused(alice.patch("/admin/v1/tables/db/vault", json={"unset": [name]}))
    assert _governs(alice) == before
    assert alice.get(f"{served.prefix}/namespaces/db/tables").text == tables
    assert (
        MECHANISM not in _shown(served, alice, "plain") or _governs(alice, "plain")[MECHANISM] == "plaintext"
    )


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("disguise", [each for each in DISGUISES if "option" not in each])
def test_disguised_protection_of_a_namespace_is_refused(
    alice: httpx.Client, served: Service, disguise: str
) -> None:
    name = DISGUISES[disguise](UNSEALED)
    url = f"{served.prefix}/namespaces"
    _refused(alice.post(url, json={"namespace": ["guarded"], "properties": {name: "forbid"}}))
    _refused(alice.post(f"{url}/db/properties", json={"updates": {name: "forbid"}}))
    assert alice.get(f"{url}/db").json()["properties"] == {}


@pytest.mark.parametrize(
    "name", [MECHANISM, LIST, "orc.encrypt", "Encryption.Mechanism", "lakewarden.unsealed"]
)
def test_protection_said_in_the_wrong_place_is_refused(
    alice: httpx.Client, served: Service, name: str
) -> None:
    """On a namespace nothing governs its tables; on a table nothing says what its namespace allows."""
    value = "forbid" if name == UNSEALED else "envelope"
    if name == UNSEALED:
        _refused(_commit(alice, served, "plain", _set(**{name: value})))
        _refused(new_table(alice, served.prefix, "db", "new", properties={name: value}))
        return
    url = f"{served.prefix}/namespaces"
    _refused(alice.post(url, json={"namespace": ["guarded"], "properties": {name: value}}))
    _refused(alice.post(f"{url}/db/properties", json={"updates": {name: value}}))


@pytest.mark.parametrize("name", ["location", "Location", " location"])
def test_location_as_a_property_is_refused(alice: httpx.Client, served: Service, name: str) -> None:
    """It would be kept, and the table would lie elsewhere than it says."""
    value = f"file://{served.lake.root}/elsewhere"
    _refused(new_table(alice, served.prefix, "db", "new", properties={name: value}))
    _refused(_commit(alice, served, "plain", _set(**{name: value})))
    change = {"action": "set-property", "name": name, "value": value}
    _refused(alice.post("/engine/v1/tables/db/plain/alter", json={"changes": [change]}))


#: Each is refused: two words on one governed property, in one request.
TWO_WORDS: Final[dict[str, list[dict[str, Any]]]] = {
    "two values": [_set(**{MECHANISM: "plaintext"}), _set(**{MECHANISM: "envelope"})],
    "two values, the last one in force": [
        _set(**{"encryption.footer": "plaintext"}),
        _set(**{"encryption.footer": "encrypted"}),
    ],
    "two values, the first one in force": [_set(**{MECHANISM: "envelope"}), _set(**{MECHANISM: "plaintext"})],
    "two spellings in one update": [_set(**{MECHANISM: "plaintext", f"option.{MECHANISM}": "envelope"})],
    "two spellings in two updates": [
        _set(**{"encryption.key-id": "lakewarden"}),
        _set(**{"encryption.master-key-id": "another"}),
    ],
    "one key for all, and keys of columns": [
        _set(**{"parquet.encryption.uniform.key": "lakewarden"}),
        _set(**{"encryption.columns": "another:id"}),
    ],
    "set and removed": [_set(**{MECHANISM: "plaintext"}), _remove(MECHANISM)],
    "removed and set": [_remove(MECHANISM), _set(**{MECHANISM: "plaintext"})],
    "set as it is and removed": [_set(**{MECHANISM: "envelope"}), _remove(MECHANISM)],
    "set and removed by another spelling": [
        _set(**{"encryption.key-id": "another"}),
        _remove("option.encryption.master-key-id"),
    ],
}


@pytest.mark.parametrize("words", TWO_WORDS)
def test_two_words_on_one_property_are_refused(served: Service, alice: httpx.Client, words: str) -> None:
    """None of them silently has the last word, whichever is said first."""
    before = _governs(alice)
    for updates in (TWO_WORDS[words], TWO_WORDS[words][::-1]):
        _refused(_commit(alice, served, "vault", *updates))
        answer = alice.post("/engine/v1/tables/db/vault/alter", json={"changes": _as_changes(updates)})
        _refused(answer)
    assert _governs(alice) == before


def _as_changes(updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    changes: list[dict[str, Any]] = []
    for update in updates:
        for name, value in update.get("updates", {}).items():
            changes.append({"action": "set-property", "name": name, "value": value})
        changes += [{"action": "remove-property", "name": name} for name in update.get("removals", [])]
    return changes


def test_one_word_said_twice_is_one(served: Service, alice: httpx.Client) -> None:
    before = _governs(alice)
    echo = _set(**before)
    assert _commit(alice, served, "vault", echo, echo).status_code == 200
    assert (
        _commit(alice, served, "vault", _remove("encryption.footer", "encryption.footer")).status_code == 200
    )
    assert _governs(alice) == before


@pytest.mark.parametrize(
    "text",
    [
        f'{{"{MECHANISM}":"envelope","{MECHANISM}":"plaintext"}}',
        f'{{"{MECHANISM}":"envelope","encryption.mech\\u0061nism":"plaintext"}}',
        f'{{"{LIST}":"file:///a","\\u0072ead.allowed.data.paths":"file:///b"}}',
    ],
)
def test_name_given_twice_in_json_is_refused(served: Service, alice: httpx.Client, text: str) -> None:
    bodies = {
        "tables": f'{{"name":"n","schema":{json.dumps(SCHEMA)},"properties":{text}}}',
        "tables/vault": f'{{"updates":[{{"action":"set-properties","updates":{text}}}]}}',
        "properties": f'{{"updates":{text}}}',
    }
    headers = {"Content-Type": "application/json"}
    for path, body in bodies.items():
        url = f"{served.prefix}/namespaces/db/{path}"
        refused(alice.post(url, content=body, headers=headers), 400, "RequestInvalid", "json")
    answer = alice.patch("/admin/v1/tables/db/vault", content=f'{{"set":{text}}}', headers=headers)
    refused(answer, 400, "RequestInvalid", "json")


def test_name_given_twice_on_the_command_line_is_refused(host: Host) -> None:
    host.make_table("sales.orders")
    for words in (["comment=a", "comment=b"], [f"{MECHANISM}=envelope", f"{MECHANISM}=plaintext"]):
        host.run("table", "set", "sales.orders", *words, "--as", "ann", code=2)


@pytest.fixture
def host(tmp_path: Any) -> Host:
    made = Host(tmp_path)
    made.init()
    return made


#: Names that are nobody's but the client's own: kept as they are, without any effect.
LITERAL: Final = (
    "write․metadata․path",
    "ｓ3.endpoint",
    "s3\u200b.endpoint",
    "comment\u200b",
    "COMMENT",
)


@pytest.mark.nightly
@pytest.mark.parametrize("name", LITERAL)
def test_confusable_of_an_ordinary_name_is_literal(served: Service, alice: httpx.Client, name: str) -> None:
    """It sends nobody's writers anywhere, and is shown as it was given; the real one is not touched by it."""
    elsewhere = f"file://{served.lake.root}/elsewhere"
    assert _commit(alice, served, "plain", _set(**{name: elsewhere})).status_code == 200
    shown = _shown(served, alice, "plain")
    assert shown[name] == elsewhere
    assert not {"write.data.path", "write.metadata.path", "s3.endpoint", "comment"} & shown.keys()
    begun = alice.post("/engine/v1/tables/db/plain/writes").json()
    assert begun["location"].startswith(f"file://{served.lake.warehouse}/")
    assert _commit(alice, served, "plain", _remove(name.swapcase(), name.strip() + "x")).status_code == 200
    assert _shown(served, alice, "plain")[name] == elsewhere
    assert _commit(alice, served, "plain", _remove(name)).status_code == 200
    assert name not in _shown(served, alice, "plain")


def test_confusable_below_a_prefix_of_iceberg_is_refused(served: Service, alice: httpx.Client) -> None:
    answer = _commit(alice, served, "plain", _set(**{"write.data.pаth": "file:///elsewhere"}))
    assert (answer.status_code, answer.json()["error"]["rule"]) == (400, "property-without-effect")


def _shown(served: Service, alice: httpx.Client, table: str) -> dict[str, str]:
    answer = alice.get(f"{served.prefix}/namespaces/db/tables/{table}").json()
    properties: dict[str, str] = answer["metadata"]["properties"]
    return properties


def test_allowing_unsealed_metadata_is_dropping_protection(served: Service) -> None:
    """A user who can alter a namespace can forbid it; allowing it again takes `unprotect`."""
    rights = policy("dave", tables("db"), {"dave": ["alter"]})
    lake, url = served.lake, f"{served.prefix}/namespaces/db/properties"
    lake.set_policies([*standard_policies(), rights])
    try:
        with served.client("dave") as dave, served.client() as alice:
            assert dave.post(url, json={"updates": {UNSEALED: "forbid"}}).status_code == 200
            for change in ({"updates": {UNSEALED: "allow"}}, {"removals": [UNSEALED]}):
                refused(dave.post(url, json=change), 403, "NotAuthorized")
            assert alice.post(url, json={"removals": [UNSEALED]}).status_code == 200
    finally:
        lake.set_policies(standard_policies())


_INVISIBLE = st.sampled_from("\u200b\u200c\u200d\u2060\ufeff\u00ad\u180e\u034f\ufe0f \t\u00a0\u3000")


@pytest.mark.nightly
@given(st.data())
def test_no_disguise_made_of_equal_forms_passes(data: st.DataObject) -> None:
    """Unicode's compatibility forms, letter case, and invisible characters anywhere."""
    known = data.draw(st.sampled_from([MECHANISM, LIST, "encryption.masks", UNSEALED]))
    disguised = ""
    for character in known:
        disguised += data.draw(st.sampled_from(_FORMS[character])) + data.draw(st.just("") | _INVISIBLE)
    assert is_confusable_with(disguised, known)
    if disguised != known:
        assert is_governed(disguised)
        with pytest.raises(PropertyInvalid):
            split({disguised: "x"})


def _forms() -> dict[str, list[str]]:
    """By ASCII character: those that Unicode's compatibility mapping and letter case take for it."""
    forms: dict[str, list[str]] = {}
    for number in range(0x20, 0x1FFFF):
        character = chr(number)
        plain = unicodedata.normalize("NFKC", character).casefold()
        if len(plain) == 1 and plain.isascii():
            forms.setdefault(plain, []).append(character)
    return forms


_FORMS: Final = _forms()
