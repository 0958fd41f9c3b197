# ruff: noqa: F403, F401
from ._traceless import *
from ._traceless import __all__, __doc__
