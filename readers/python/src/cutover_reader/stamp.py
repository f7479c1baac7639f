"""The record that a commit of Cutover carries in `commitInfo.userMetadata`."""

import json

CONTRACT = 1
STEP, EPOCH = "cutover/step", "cutover/epoch"
MODULUS = 2**128
MEMBERS = ("kind", "connector", "generation", "epoch", "writer", "commit", "to", "rows", "digest")


class Untrusted(Exception):
    """A stamp of another contract, or one that lacks a member."""


def stamp_of(info: dict) -> dict | None:
    """The stamp in a commit's info; None where it has none. Raises Untrusted for what is one and cannot be used."""
    text = info.get("userMetadata")
    if not isinstance(text, str) or '"cutover"' not in text:
        return None
    try:
        stamp = json.loads(text)
    except ValueError as e:
        if text.startswith('{"cutover"'):
            raise Untrusted(f"the stamp is no JSON: {e}") from e
        return None
    if not isinstance(stamp, dict) or "cutover" not in stamp:
        return None
    if stamp["cutover"] != CONTRACT:
        raise Untrusted(f"the stamp has the contract number {stamp['cutover']}, known is {CONTRACT}")
    lacking = [name for name in MEMBERS if name not in stamp]
    if lacking or (stamp["kind"] != "reload" and "from" not in stamp):
        raise Untrusted(f"the stamp lacks {lacking or ['from']}")
    return stamp
