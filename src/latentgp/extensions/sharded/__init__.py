"""Rows over devices: processes that join, and `Dense` of which none has a whole matrix."""

from typing import TYPE_CHECKING

from latentgp.extension import Extension

if TYPE_CHECKING:
    from latentgp.extensions.sharded.processes import join_processes as join_processes

EXTENSION = Extension(
    __name__,
    names={"processes": "join_processes"},
    offers={
        "matrices over devices": f"{__name__}.posterior:condition",
        "slopes of matrices over devices": f"{__name__}.posterior:pull_back",
    },
)
__getattr__ = EXTENSION.attribute
