r"""The schemes that a location may have, and what sets each apart: spellings, authority, bounds.

Rules, in plain words:

1. A scheme that is not in `SCHEMES` is refused, one in capitals too.
2. Spellings of one scheme are equal by meaning if one driver opens the same object by each: `s3a` and `s3n`
   are Hadoop's names of `s3`; `abfss` is `abfs` over TLS, `wasbs` is `wasb` over TLS. `abfs` and `wasb` name
   different endpoints of an account and are not equal; nor are `hdfs` and `viewfs`.
3. A bucket or container is compared as bytes and is in lower case; a host is compared without regard to case,
   since names in DNS, Hadoop's cache of file systems and `FileSystem.checkPath` have no case.
4. No authority has a user, password or IPv6 address, and only HDFS has a port: PyArrow drops the port of
   `s3`, `gs` and `abfs`, and libhdfs takes the user of `hdfs` for the one to act as. HDFS's port counts, also
   as present or absent: the name of a highly available cluster has none.
5. Azure: container, account and endpoint all count. `abfs` goes to a `dfs` endpoint, `wasb` to a `blob` one.
   Sovereign clouds, DNS zones, private links and OneLake have hosts of that form too. There is no list of
   endpoints: one that no list entry names contains nothing.
   Of `abfss://c@account.blob.core.windows.net/d/f` PyArrow drops the container and opens container `d`.
6. Azure: no name ends in a dot. The ABFS driver refuses to make one, and clients that treat URLs as .NET
   does drop it, so that `t1.` and `t1` are one.
7. HDFS: no path begins with `.reserved`. Below `/.reserved/.inodes/ID` lies every file of the cluster, and
   the client lets `..` pass there (`DFSUtilClient.isValidName`).
8. A bucket or container may be named as a whole; the root of a host or cluster may not.

What each reader does with each of them, and how that was seen, stands in docs/locations.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from policy.location.segments import ORDINARY_NAME


@dataclass(frozen=True, slots=True)
class SchemeRules:
    """What sets one scheme apart from the others.

    Attributes:
        name: the scheme in the canonical form.
        spellings: every scheme that means the same.
        authority: pattern of a valid authority; None if the scheme has none.
        authority_hint: what stands between scheme and path, as a sentence.
        max_path_bytes: longest path in bytes of UTF-8, without the slash in front.
        max_name_bytes: longest single name in bytes of UTF-8.
        root_allowed: whether a location may have no path (a whole bucket may be named, a whole host not).
        drive_letters: whether some reader takes a first name such as `C:` for a drive.
        folds_authority: whether capitals in the authority mean the same as small letters.
        final_dots: whether a name may end in a dot.
        reserved: a first name that leads elsewhere; None if there is none.
    """

    name: str
    spellings: tuple[str, ...]
    authority: str | None
    authority_hint: str
    max_path_bytes: int
    max_name_bytes: int
    root_allowed: bool
    drive_letters: bool = False
    folds_authority: bool = False
    final_dots: bool = True
    reserved: str | None = None

    @property
    def ordinary(self) -> re.Pattern[str]:
        """What needs no closer look if it is short, from the colon on; groups are authority and path."""
        start = "(?://)?()" if self.authority is None else f"//({self.authority})"
        drive = "(?!/[A-Za-z](?::|%3[Aa]))" if self.drive_letters else ""
        return re.compile(f"{start}{drive}((?:/{ORDINARY_NAME}){'*' if self.root_allowed else '+'})/?")

    @property
    def ordinary_characters(self) -> int:
        """So short that no bound on bytes can be broken by a location of ASCII characters."""
        return min(self.max_path_bytes, self.max_name_bytes)


_NO_IPV4 = r"(?![0-9]+\.[0-9]+\.[0-9]+\.[0-9]+(?:/|$))"
# Bucket names of the S3 user guide ("General purpose bucket naming rules"), and the older ones that still
# exist (underscores, one or two characters). Neither have two dots in a row or the form of an IPv4 address.
_S3_BUCKET = rf"(?![^/]*\.\.){_NO_IPV4}[a-z0-9](?:[a-z0-9._-]{{0,61}}[a-z0-9])?"
# "Bucket naming" of Cloud Storage: as above from three characters on, up to 222 with dots, 63 between dots.
_GS_LABEL = r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?"
_GS_BUCKET = rf"(?=[^/]{{3,222}}(?:/|$)){_NO_IPV4}{_GS_LABEL}(?:\.{_GS_LABEL})*"
_OSS_BUCKET = r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]"
# "Naming and referencing containers" of Azure: no two hyphens in a row; the names with $ are Azure's own.
_CONTAINER = r"(?:(?=[^@]{3,63}@)[a-z0-9]+(?:-[a-z0-9]+)*|\$web|\$root|\$logs)"
_LABEL = r"[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?"
_HOST_LABEL = r"[0-9A-Za-z_](?:[0-9A-Za-z_-]{0,61}[0-9A-Za-z_])?"
_PORT = r"(?::(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3}))?"
_HADOOP_HOST = rf"(?=[^/:]{{1,253}}(?:[/:]|$)){_HOST_LABEL}(?:\.{_HOST_LABEL})*{_PORT}"


def _azure(endpoint: str, other: str) -> str:
    """Container and host; `endpoint` is the second label of the host, or the third (zones, private links)."""
    host = rf"{_LABEL}(?:\.{_LABEL})?\.{_any_case(endpoint)}(?:\.{_LABEL})+"
    return rf"{_CONTAINER}@(?=[^/]{{1,253}}(?:/|$))(?![^/]*\.{_any_case(other)}\.){host}"


def _any_case(word: str) -> str:
    """Pattern of an ASCII word in any case; the flag for it would also let the long s pass for an s."""
    return "".join(f"[{letter}{letter.upper()}]" for letter in word)


_BUCKET_HINT = (
    "After the scheme, write // and a bucket of {} lowercase letters, digits{} or hyphens, "
    "without user, password or port."
)
_AZURE_HINT = (
    "Write {0}://container@account.{1}.endpoint/path, where account.{1}.endpoint is the account's host "
    "(account.{1}.core.windows.net in the public cloud), without password or port."
)
_HADOOP_HINT = (
    "After the scheme, write // and a host or cluster name, with a port if it has one, without a user."
)

SCHEMES: Final = (
    SchemeRules(
        name="s3",
        spellings=("s3", "s3a", "s3n"),
        authority=_S3_BUCKET,
        authority_hint=_BUCKET_HINT.format("1 to 63", ", dots, underscores"),
        max_path_bytes=1024,
        max_name_bytes=1024,
        root_allowed=True,
    ),
    SchemeRules(
        name="gs",
        spellings=("gs",),
        authority=_GS_BUCKET,
        authority_hint=_BUCKET_HINT.format("3 to 222", ", dots, underscores"),
        max_path_bytes=1024,
        max_name_bytes=1024,
        root_allowed=True,
    ),
    SchemeRules(
        name="oss",
        spellings=("oss",),
        authority=_OSS_BUCKET,
        authority_hint=_BUCKET_HINT.format("3 to 63", ""),
        max_path_bytes=1023,
        max_name_bytes=1023,
        root_allowed=True,
    ),
    SchemeRules(
        name="abfss",
        spellings=("abfs", "abfss"),
        authority=_azure("dfs", "blob"),
        authority_hint=_AZURE_HINT.format("abfss", "dfs"),
        max_path_bytes=1024,
        max_name_bytes=1024,
        root_allowed=True,
        folds_authority=True,
        final_dots=False,
    ),
    SchemeRules(
        name="wasbs",
        spellings=("wasb", "wasbs"),
        authority=_azure("blob", "dfs"),
        authority_hint=_AZURE_HINT.format("wasbs", "blob"),
        max_path_bytes=1024,
        max_name_bytes=1024,
        root_allowed=True,
        folds_authority=True,
        final_dots=False,
    ),
    *(
        SchemeRules(
            name=name,
            spellings=(name,),
            authority=_HADOOP_HOST,
            authority_hint=_HADOOP_HINT,
            max_path_bytes=4094,
            max_name_bytes=255,
            root_allowed=False,
            drive_letters=True,
            folds_authority=True,
            reserved=".reserved",
        )
        for name in ("hdfs", "viewfs")
    ),
    SchemeRules(
        name="file",
        spellings=("file",),
        authority=None,
        authority_hint="A file location has no host. Write file:///path.",
        max_path_bytes=4094,
        max_name_bytes=255,
        root_allowed=False,
        drive_letters=True,
    ),
)
"""The schemes that are understood.

Bounds: S3 and Cloud Storage have keys of 1,024 bytes, OSS of 1,023, Azure names of 1,024 characters (here
bytes). Linux has NAME_MAX 255 and PATH_MAX 4,096 with NUL; HDFS names of 255 by default, and paths of 8,000
characters, of which the longer ones are refused here.
"""
