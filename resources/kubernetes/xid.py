"""Xids: the codes under which NVIDIA's driver reports errors, and which of them are about the machine. Data.

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
"""The codes by what the catalog says is to be done first."""
OF_THE_MACHINE = (
    "RESET_GPU",
    "WORKFLOW_XID_48",
    "WORKFLOW_NVLINK_ERR",
    "RESTART_BM",
    "RESTART_VM",
    "CHECK_MECHANICALS",
)
"""The actions after which the application can run again, and not before. 94, say, is not among them: the memory error
is contained, and the application alone is started again."""
_CODE = re.compile(r"\bXid(?: \([^)]*\))?\W{0,3}(\d{1,3})\b|\bErrorCode:(\d{1,3})\b", re.IGNORECASE)
_RECOVERY = re.compile(r"recovery action changed from \S+ \(.*?\) to \S+ \((.*?)\)", re.IGNORECASE)


def codes(message: str) -> list[int]:
    """The codes that a message names: of the kernel's log (`NVRM: Xid (PCI:0000:3b:00): 79, …`) or a health agent."""
    return [int(first or second) for first, second in _CODE.findall(message)]


def action(code: int) -> str:
    """What the catalog says is to be done first; empty for a code that it does not have, or has for older GPUs."""
    return _ACTION_OF.get(code, "")


def of_the_machine(message: str) -> list[int]:
    """Those of a message's codes that are about the machine and not the application."""
    return [code for code in codes(message) if action(code) in OF_THE_MACHINE or _wants_recovery(code, message)]


def _wants_recovery(code: int, message: str) -> bool:
    """154 says what the driver itself now holds to be necessary."""
    found = _RECOVERY.search(message)
    return code == 154 and found is not None and found[1].lower() != "none"


def _listed(text: str) -> list[int]:
    """The codes of a row."""
    bounds = [[int(bound) for bound in word.split("-")] for word in text.split()]
    return [code for bound in bounds for code in range(bound[0], bound[-1] + 1)]


_ACTION_OF = {code: action for action, row in ACTIONS.items() for code in _listed(row)}
