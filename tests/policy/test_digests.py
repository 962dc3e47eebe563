"""A set of documents has one digest, whatever the order."""

from __future__ import annotations

from hashlib import sha256

from policy.digests import digest_of_documents


def test_the_digest_is_over_lengths_names_and_texts_in_the_order_of_names() -> None:
    whole = b"".join(len(part).to_bytes(8, "big") + part for part in (b"a", b"x", b"b", "\u00e9".encode()))
    assert digest_of_documents({"b": "\u00e9", "a": b"x"}) == sha256(whole).hexdigest()
    assert digest_of_documents({}) == sha256().hexdigest()


def test_a_text_is_its_bytes_and_the_order_does_not_matter() -> None:
    assert digest_of_documents({"a": "\u00e9", "b": b"x"}) == digest_of_documents(
        {"b": "x", "a": "\u00e9".encode()}
    )


def test_what_belongs_to_a_name_and_what_to_a_text_is_told_apart() -> None:
    documents = [{"ab": "c"}, {"a": "bc"}, {"a": "b", "c": ""}, {"": "abc"}, {"abc": ""}]
    assert len({digest_of_documents(each) for each in documents}) == len(documents)


def test_a_lone_surrogate_has_a_digest_of_its_own() -> None:
    found = {digest_of_documents({"a\udc80": "x"}), digest_of_documents({"a": "x\udc80"})}
    assert len(found | {digest_of_documents({"a": "x?"}), digest_of_documents({"a?": "x"})}) == 4
