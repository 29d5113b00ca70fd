"""`Dense` with rows over devices, none of which has a whole matrix."""

from latentgp.extension import Extension

EXTENSION = Extension(
    __name__,
    names={},
    offers={
        "matrices over devices": f"{__name__}.posterior:condition",
        "slopes of matrices over devices": f"{__name__}.posterior:pull_back",
    },
)
__getattr__ = EXTENSION.attribute
