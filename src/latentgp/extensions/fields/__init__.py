"""Fields: processes of places."""

from latentgp.extension import Extension

EXTENSION = Extension(__name__, names={})
__getattr__ = EXTENSION.attribute
