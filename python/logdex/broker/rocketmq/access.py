"""Access keys, and the signatures that clients make with them.

Source: AclUtils, AclClientRPCHook, PlainAccessValidator.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64encode
from typing import TYPE_CHECKING

from logdex._core import read_file
from logdex.errors import CorruptFileError

if TYPE_CHECKING:
    from pathlib import Path

    from logdex._core import RemotingCommand

ACCESS_KEY = "AccessKey"
_SIGNATURE = "Signature"
SECRETS = frozenset({ACCESS_KEY, _SIGNATURE, "SecurityToken"})
"""Fields that are never logged."""
_NOT_SIGNED = {_SIGNATURE, "_UNIQUE_KEY_QUERY"}
_MEMBER = re.compile(r"^\s*(?:-\s+)?(accessKey|secretKey)\s*:\s*(['\"]?)(.+?)\2\s*(?:#.*)?$", re.MULTILINE)
_ERROR = "org.apache.rocketmq.acl.common.AclException"


def read_access_keys(path: Path) -> dict[str, str]:
    """Read access keys and their secrets from lines `accessKey: A` and `secretKey: S`, as in tools.yml and plain_acl.yml.

    Raises:
        CorruptFileError: The file has no key, or a key without a secret.
        OSError: An I/O error.
    """
    text = read_file(path).decode(errors="replace")
    members = [(match[1], match[3]) for match in _MEMBER.finditer(text)]
    names = [name for name, _ in members]
    if not members or names != ["accessKey", "secretKey"] * (len(members) // 2):
        raise CorruptFileError(str(path), 0, "lines `accessKey: A`, each followed by `secretKey: S`", f"{names}")
    values = [value for _, value in members]
    return dict(zip(values[::2], values[1::2], strict=True))


def signature(command: RemotingCommand, secret: str) -> str:
    """Return the signature of a request: of the values of its fields, in the order of their names, and of its body."""
    # Java compares texts by UTF-16 units.
    names = sorted(command.ext.keys() - _NOT_SIGNED, key=lambda name: name.encode("utf-16-be", errors="surrogatepass"))
    content = "".join(command.ext[name] for name in names).encode(errors="replace") + command.body
    return b64encode(hmac.digest(secret.encode(), content, hashlib.sha1)).decode()


def refusal(command: RemotingCommand, keys: dict[str, str]) -> str | None:
    """Return the reason to refuse a request; None if it is signed by a known key."""
    key = command.ext.get(ACCESS_KEY)
    if not key:
        return f"{_ERROR}: No accessKey is configured"
    secret = keys.get(key)
    if secret is None:
        return f"{_ERROR}: No acl config for {key}"
    given = command.ext.get(_SIGNATURE, "").encode(errors="replace")
    if not hmac.compare_digest(signature(command, secret).encode(), given):
        return f"{_ERROR}: Check signature failed for accessKey={key}"
    return None
