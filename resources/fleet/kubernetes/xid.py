"""Xids: the error codes of NVIDIA's driver, and which of them mean a fault of the machine. Data.

Source: the immediate actions ("resolution bucket") of NVIDIA's Xid catalog for A100 and later,
docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, as of 2025-10-29.
"""

import re
from collections.abc import Mapping

ACTIONS: Mapping[str, str] = {
    "RESTART_APP": "8 11 13 25 31 32 39-41 60 68-72 75-77 80-86 88 89 94 96-105 126-135 139",
    "IGNORE": "37 38 43 44 63 66 67 92 93 106 107 121 137 141 152 153 157 160 161",
    "WORKFLOW_XID_45": "45",
    "WORKFLOW_XID_48": "48",
    "WORKFLOW_NVLINK_ERR": "74 144-150",
    "RESET_GPU": "46 62 64 95 109 110 119 120 136 140 143 155 156 158",
    "RESTART_BM": "79",
    "RESTART_VM": "151",
    "CHECK_MECHANICALS": "54",
    "UPDATE_SWFW": "78",
    "CONTACT_SUPPORT": "142",
    "CHECK_UVM": "159",
    "XID_154": "154",
}
"""The codes by the first action in the catalogue."""
MACHINE_ACTIONS = (
    "RESET_GPU",
    "WORKFLOW_XID_48",
    "WORKFLOW_NVLINK_ERR",
    "RESTART_BM",
    "RESTART_VM",
    "CHECK_MECHANICALS",
)
"""The actions that the machine needs before an application can run again. The action of code 94 is not one of them:
that memory error is contained, and only the application must be restarted."""
_CODE = re.compile(r"\bXid(?: \([^)]*\))?\W{0,3}(\d{1,3})\b|\bErrorCode:(\d{1,3})\b", re.IGNORECASE)
_RECOVERY = re.compile(r"recovery action changed from \S+ \(.*?\) to \S+ \((.*?)\)", re.IGNORECASE)


def codes(message: str) -> list[int]:
    """The codes in a message of the kernel log (`NVRM: Xid (PCI:0000:3b:00): 79, …`) or of a health agent."""
    return [int(first or second) for first, second in _CODE.findall(message)]


def action(code: int) -> str:
    """The first action in the catalogue; "" for an unknown code, or one that only older GPUs have."""
    return _ACTION_OF.get(code, "")


def machine_codes(message: str) -> list[int]:
    """The codes of a message that mean a fault of the machine, and not of the application."""
    return [code for code in codes(message) if action(code) in MACHINE_ACTIONS or _wants_recovery(code, message)]


def _wants_recovery(code: int, message: str) -> bool:
    """Whether code 154 reports that the driver requires a recovery action."""
    match = _RECOVERY.search(message)
    return code == 154 and match is not None and match[1].lower() != "none"


def _codes_of(text: str) -> list[int]:
    """The codes in a row of the catalogue."""
    bounds = [[int(bound) for bound in word.split("-")] for word in text.split()]
    return [code for bound in bounds for code in range(bound[0], bound[-1] + 1)]


_ACTION_OF = {code: action for action, row in ACTIONS.items() for code in _codes_of(row)}
