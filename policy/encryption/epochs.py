"""From which sequence number on which encryption holds, and whether a file fits.

Rules:
- The epochs of a table begin at sequence number 0, are ordered, and leave no gap.
- A new file is judged by the current epoch, a sealed file by the one of its file sequence number. So a table
  can be encrypted, or change its algorithm or keys, without an instant in which old or new files escape.
- A file must be exactly what its epoch says: encrypted or not, with that algorithm, footer, keys and
  columns. What cannot be decided is refused.
- A sealed file may be as the current epoch says, too; then a rewrite has not to touch it. When all are, the
  other epochs can go, so that no file is ever judged by them again.
- Of a PEK, an epoch names the version that holds from its first sequence number on. A new file is under that
  version. A sealed one is under it or a later version of the same PEK: a file whose keys were rewrapped
  keeps its sequence number.

Source: docs/architecture.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final
from uuid import UUID

from policy.decision import Decision, Reason
from policy.encryption.encrypted_columns import KeyedFields
from policy.encryption.file_formats import FileFormat
from policy.encryption.specification import Algorithm, EncryptionSpec, Footer, VerifyDigest
from policy.errors import EncryptionPolicyViolation

#: The rule that refuses a file under a key that its epoch does not name.
FOREIGN_PEK: Final = "pek"


@dataclass(frozen=True, slots=True)
class PekRef:
    """Names one version of a table's key.

    Attributes:
        pek_id: id of the PEK.
        version: its version, 1 or more.
        master_key_id: the master key that wraps it.
    """

    pek_id: UUID
    version: int
    master_key_id: str


@dataclass(frozen=True, slots=True)
class FileKey:
    """One key of a file, as its key metadata states it.

    Attributes:
        pek: the PEK that wraps the key.
        field_ids: the columns under the key; empty for the footer key, or the key of the whole file.
        length: length of the key in bytes.
    """

    pek: PekRef
    field_ids: tuple[int, ...]
    length: int


@dataclass(frozen=True, slots=True)
class FileKeys:
    """What a file's key metadata states, without the keys.

    Attributes:
        algorithm: the algorithm of the file.
        footer: whether the footer is encrypted.
        keys: the footer key first, then the column keys.
        stock_readers: whether the file also carries what standard readers need.
        digest: whether the key metadata keeps the file's digest.
        footer_digest: whether it keeps that of the file's footer.
    """

    algorithm: Algorithm
    footer: Footer
    keys: tuple[FileKey, ...]
    stock_readers: bool = False
    digest: bool = False
    footer_digest: bool = False


@dataclass(frozen=True, slots=True)
class Epoch:
    """The encryption that holds from one sequence number on.

    Attributes:
        from_sequence_number: the first sequence number it governs, 0 or more.
        spec: mechanism, algorithm, keys and columns.
        columns: the columns of `spec` by field id; with `plaintext_columns`, then those without a column key.
        peks: the PEK versions that new files are under; none for plaintext.
        masks: the masks of `spec`, each after the id of its field; ascending.
    """

    from_sequence_number: int
    spec: EncryptionSpec
    columns: tuple[KeyedFields, ...] = ()
    peks: tuple[PekRef, ...] = ()
    masks: tuple[tuple[int, str], ...] = ()

    def __post_init__(self) -> None:
        if self.from_sequence_number < 0:
            raise _malformed("An encryption epoch begins at a negative sequence number.")
        named = tuple(group.key_id for group in self.spec.columns)
        others = () if self.spec.plaintext_columns is None else (self.spec.master_key_id,)
        if tuple(group.key_id for group in self.columns) not in (named, (*named, *others)):
            raise _malformed("The columns of an encryption epoch do not match its specification.")
        if {ref.master_key_id for ref in self.peks} != set(self.spec.key_ids()):
            raise _malformed("The PEKs of an encryption epoch do not match its master keys.")
        if len(set(self.peks)) != len(self.peks):
            raise _malformed("An encryption epoch names the same PEK twice.")

    @property
    def others(self) -> KeyedFields | None:
        """The columns under the table's master key because no property names them."""
        return self.columns[-1] if len(self.columns) > len(self.spec.columns) else None


@dataclass(frozen=True, slots=True)
class Epochs:
    """All epochs of a table, oldest first.

    Raises:
        EncryptionPolicyViolation: no epoch, none at sequence number 0, or not in ascending order.
    """

    entries: tuple[Epoch, ...]
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = tuple(epoch.from_sequence_number for epoch in self.entries)
        if not starts or starts[0] != 0:
            raise _malformed("No encryption epoch covers sequence number 0.")
        if any(later <= earlier for earlier, later in pairwise(starts)):
            raise _malformed("The encryption epochs are not in ascending order of sequence numbers.")
        object.__setattr__(self, "_starts", starts)

    @classmethod
    def of(cls, epochs: Iterable[Epoch]) -> Epochs:
        """The epochs given, oldest first."""
        return cls(tuple(epochs))

    @property
    def current(self) -> Epoch:
        """The epoch of new files."""
        return self.entries[-1]

    def followed_by(self, epoch: Epoch) -> Epochs:
        """These epochs and a newer one, which replaces the current one if it begins with it.

        Raises:
            EncryptionPolicyViolation: the epoch begins before the current one.
        """
        replaced = epoch.from_sequence_number == self.current.from_sequence_number
        return Epochs((*(self.entries[:-1] if replaced else self.entries), epoch))


def epoch_for(epochs: Epochs, sequence_number: int) -> Epoch:
    """The epoch that governs a sequence number.

    Raises:
        EncryptionPolicyViolation: the sequence number is negative.
    """
    if sequence_number < 0:
        raise EncryptionPolicyViolation(
            f"No encryption epoch covers sequence number {sequence_number}.",
            rule="epoch",
            hint="The metadata is malformed; restore it from a sealed version.",
        )
    return epochs.entries[bisect_right(epochs._starts, sequence_number) - 1]


def check_new_file(epochs: Epochs, keys: FileKeys | None, *, deletes: bool = False) -> Decision:
    """Whether a file that is about to be committed fits the current epoch.

    Args:
        epochs: the table's epochs.
        keys: what the file's key metadata states; None for a file without any.
        deletes: whether it is a position delete file: it has no column of the table, and is under one key.
    """
    epoch = epochs.current
    return _decide(epoch, keys, lambda pek: pek in epoch.peks, deletes=deletes)


def check_sealed_file(
    epochs: Epochs, sequence_number: int | None, keys: FileKeys | None, *, deletes: bool = False
) -> Decision:
    """Whether a committed file fits the epoch of its file sequence number.

    Not of its data sequence number: a file that a compaction wrote today keeps the data sequence numbers of
    the rows it took over, and is encrypted as today's epoch says (Iceberg spec, "Sequence Numbers").

    Args:
        epochs: the table's epochs.
        sequence_number: the file's file sequence number after inheritance; None if it is not known.
        keys: what the file's key metadata states; None for a file without any.
        deletes: whether it is a position delete file.
    """
    if sequence_number is None or sequence_number < 0:
        return _deny(
            "epoch", "The file's sequence number is unknown, so its encryption epoch cannot be determined."
        )
    epoch = epoch_for(epochs, sequence_number)
    return _decide(
        epoch, keys, lambda pek: any(_is_later(pek, named) for named in epoch.peks), deletes=deletes
    )


def check_migrated(epochs: Epochs, keys: FileKeys | None, *, deletes: bool = False) -> Decision:
    """Whether a sealed file is as the current epoch says, under whichever version of its PEKs.

    Versions are not what a rewrite is for: data keys move to later ones without it. But it alone gives files
    with keys of columns the digest of their footer, which they have not always had.

    Args:
        epochs: the table's epochs.
        keys: what the file's key metadata states; None for a file without any.
        deletes: whether it is a position delete file.
    """
    named = {(ref.pek_id, ref.master_key_id) for ref in epochs.current.peks}
    judged = _decide(
        epochs.current, keys, lambda pek: (pek.pek_id, pek.master_key_id) in named, deletes=deletes
    )
    if judged.allowed and keys is not None and _lacks_footer_digest(keys):
        return _deny("footer-digest", "The key metadata does not keep the digest of the file's footer.")
    return judged


def _lacks_footer_digest(keys: FileKeys) -> bool:
    parquet = keys.algorithm.file_format is FileFormat.PARQUET
    return parquet and len(keys.keys) > 1 and not keys.footer_digest


def migrated(epochs: Epochs) -> Epochs:
    """The epochs that are left once every file is as the current one says.

    The current one governs from 0 on, naming of each PEK the first version that any epoch names: older files
    may be under that one still. Those that differ from it in versions alone stay.
    """
    current = epochs.current
    known = [ref for epoch in epochs.entries for ref in epoch.peks]
    first = dict.fromkeys(
        replace(ref, version=min(each.version for each in known if _is_later(ref, each)))
        for ref in current.peks
    )
    kept = [replace(current, from_sequence_number=0, peks=tuple(first))]
    for epoch in epochs.entries:
        if epoch.from_sequence_number > 0 and kind(epoch) == kind(current) and epoch.peks != kept[-1].peks:
            kept.append(epoch)
    return Epochs.of(kept)


def encrypts_equally(before: Epoch, now: Epoch) -> bool:
    """Whether a file that was written as one epoch says is what another one says, once its keys are wrapped.

    The versions of PEKs make no difference, nor the names of columns, nor when digests are looked at.
    """
    return _written(before) == _written(now)


def _written(epoch: Epoch) -> tuple[object, ...]:
    spec = replace(
        epoch.spec,
        columns=(),
        plaintext_columns=None,
        masks=(),
        verify_digest=VerifyDigest.NEVER,
        standard_clients=None,
        shows_partitions=False,
    )
    return spec, epoch.spec.keeps_digests, epoch.columns, epoch.masks


def kind(epoch: Epoch) -> Epoch:
    """An epoch but for where it begins, and the versions of its PEKs."""
    peks = {replace(ref, version=1) for ref in epoch.peks}
    return replace(epoch, from_sequence_number=0, peks=tuple(sorted(peks, key=lambda ref: ref.pek_id)))


_PLAINTEXT_FITS = Decision.allow(Reason("plaintext-required", "The table is not encrypted, nor is the file."))
_KEYS_FIT = Decision.allow(Reason("encryption-required", "The file is encrypted as its epoch says."))


def _is_later(pek: PekRef, named: PekRef) -> bool:
    """Whether a PEK is the one that is named, in that version or a later one."""
    same = (pek.pek_id, pek.master_key_id) == (named.pek_id, named.master_key_id)
    return same and pek.version >= named.version


def _decide(
    epoch: Epoch, keys: FileKeys | None, fits: Callable[[PekRef], bool], *, deletes: bool = False
) -> Decision:
    if not epoch.spec.encrypts:
        if keys is None:
            return _PLAINTEXT_FITS
        return _deny(
            "plaintext-required", "The file has key metadata, but its encryption epoch is plaintext."
        )
    if keys is None:
        return _deny(
            "encryption-required", "The file is unencrypted, but its encryption epoch requires encryption."
        )
    return _check_keys(epoch, keys, fits, deletes)


def _check_keys(epoch: Epoch, keys: FileKeys, fits: Callable[[PekRef], bool], deletes: bool) -> Decision:
    spec, required = epoch.spec, epoch.spec.data_key_length
    if keys.algorithm is not spec.algorithm:
        return _deny(
            "algorithm", f"The file uses {keys.algorithm}. Its encryption epoch requires {spec.algorithm}."
        )
    if keys.footer is not spec.footer:
        return _deny(
            "footer", f"The file's footer is {keys.footer}. Its encryption epoch requires {spec.footer}."
        )
    if keys.stock_readers is not spec.stock_readers:
        found = "has" if keys.stock_readers else "does not have"
        return _deny(
            "stock-readers", f"The file {found} the key material for standard readers, contrary to its epoch."
        )
    if keys.digest is not spec.keeps_digests:
        kept = "keeps" if keys.digest else "does not keep"
        return _deny(
            "file-digest", f"The key metadata {kept} the file's digest, contrary to its encryption epoch."
        )
    for key in keys.keys:
        if not fits(key.pek):
            return _deny(
                FOREIGN_PEK,
                f"The file is under PEK {key.pek.pek_id}, which its encryption epoch does not allow.",
            )
        if key.length != spec.data_key_length:
            return _deny(
                "data-key-length",
                f"The file has a data key of {key.length} bytes. Its epoch requires {required} bytes.",
            )
    return _check_columns(epoch, keys, deletes)


def _check_columns(epoch: Epoch, keys: FileKeys, deletes: bool) -> Decision:
    """The footer under the table's master key, and each group of columns under its own."""
    if not keys.keys or keys.keys[0].field_ids or keys.keys[0].pek.master_key_id != epoch.spec.master_key_id:
        return _deny(
            FOREIGN_PEK, "The footer key is not wrapped under the master key that the encryption epoch names."
        )
    groups = () if deletes else epoch.columns
    stated = sorted((key.pek.master_key_id, key.field_ids) for key in keys.keys[1:])
    if stated != sorted((group.key_id, group.field_ids) for group in groups):
        return _deny("columns", "The file's column keys do not match those of its encryption epoch.")
    return _KEYS_FIT


def _deny(rule: str, detail: str) -> Decision:
    return Decision.deny(Reason(rule, detail))


def _malformed(message: str) -> EncryptionPolicyViolation:
    return EncryptionPolicyViolation(
        message,
        rule="epoch",
        hint="The table's governed state is damaged. Restore the catalog's database from a backup.",
    )
