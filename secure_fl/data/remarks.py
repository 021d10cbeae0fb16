"""What a person should look at before clients train together: labels that hardly meet."""

import re
import unicodedata
from collections.abc import Sequence

from secure_fl.data.dataset import Dataset

_SHOWN = 5
"""Names that a remark lists before it counts the rest."""


def label_remarks(clients: Sequence[Dataset]) -> tuple[str, ...]:
    """Remarks, one line each, on clients whose labels are hardly those of the others.

    Nothing here is an error: clients may know different classes. But `benign` at one and `0` at
    another train two classes where one was meant.

    Args:
        clients: of one federation, under one class list.

    Returns:
        One remark for each set of class names that differ only in case, blanks, punctuation,
        leading zeros or the encoding of accents; and one that names the groups of clients, if there
        are several, between which no two share half of the classes of either. Empty where there
        is one client.
    """
    if len(clients) < 2:
        return ()
    held = {each.name: _held(each) for each in clients}
    return (*_alike(held), *_apart(held))


def _held(client: Dataset) -> tuple[str, ...]:
    """The classes of which a client has records, in the federation's order."""
    return tuple(name for name, count in zip(client.classes, client.counts(), strict=True) if count)


def _alike(held: dict[str, tuple[str, ...]]) -> list[str]:
    spellings: dict[str, dict[str, list[str]]] = {}
    for client, classes in held.items():
        for name in classes:
            spellings.setdefault(_core(name), {}).setdefault(name, []).append(client)
    remarks = []
    for names in spellings.values():
        if len(names) > 1:
            who = "; ".join(f'"{name}" at {_listed(at)}' for name, at in names.items())
            remarks.append(
                f"remark: these are different classes, spelled nearly alike: {who}; spell them the"
                " same if one is meant"
            )
    return remarks


def _core(name: str) -> str:
    """What is left of a name without case, blanks, punctuation and leading zeros."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    # A sign or a point makes another number.
    core = plain if re.fullmatch(r"[+-]?[0-9.]+", plain) else re.sub(r"[\W_]+", "", plain)
    return re.sub(r"^0+(?=[0-9])", "", core) or plain


def _apart(held: dict[str, tuple[str, ...]]) -> list[str]:
    groups = _groups(held)
    if len(groups) < 2:
        return []
    parts = []
    for group in groups[:_SHOWN]:
        own = list(dict.fromkeys(name for client in group for name in held[client]))
        parts.append(f"{_listed(group)} with {_listed(own)}")
    more = f"; and {len(groups) - _SHOWN} more" if len(groups) > _SHOWN else ""
    return [
        f"remark: {len(groups)} groups of clients have few or no classes in common:"
        f" {'; '.join(parts)}{more}; check that labels are spelled the same"
    ]


def _groups(held: dict[str, tuple[str, ...]]) -> list[list[str]]:
    """Clients, joined where two share at least half of the classes of the one that has fewer."""
    alike: dict[frozenset[str], list[str]] = {}
    for client, classes in held.items():
        alike.setdefault(frozenset(classes), []).append(client)
    joined: list[list[frozenset[str]]] = []
    for own in alike:
        near = [group for group in joined if any(_meet(own, other) for other in group)]
        joined = [group for group in joined if group not in near]
        joined.append([other for group in near for other in group] + [own])
    place = {client: i for i, client in enumerate(held)}
    groups = [
        sorted((c for each in group for c in alike[each]), key=place.__getitem__)
        for group in joined
    ]
    return sorted(groups, key=lambda group: place[group[0]])


def _meet(a: frozenset[str], b: frozenset[str]) -> bool:
    return 2 * len(a & b) >= min(len(a), len(b))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    shown = ", ".join(names[:_SHOWN])
    return shown if more <= 0 else f"{shown} and {more} more"
