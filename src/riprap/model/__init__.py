"""Models of applications: how available they are, and how much of their output is tainted, under each protection.

>>> from riprap.model import Checkpoints, Faults, Profile, predict
"""

from riprap.model.exact import predict_exactly
from riprap.model.parts import Part, parts_of
from riprap.model.prediction import Cost, Estimate, Exact, Faults, Prediction, predict
from riprap.model.profile import OperatorProfile, Port, Profile, read_profile
from riprap.model.techniques import (
    Annotated,
    Checkpoints,
    ConsistentRegion,
    Groups,
    Replication,
    Technique,
    Unprotected,
)
from riprap.protection import Protection

__all__ = [
    "Annotated",
    "Checkpoints",
    "ConsistentRegion",
    "Cost",
    "Estimate",
    "Exact",
    "Faults",
    "Groups",
    "OperatorProfile",
    "Part",
    "Port",
    "Prediction",
    "Profile",
    "Protection",
    "Replication",
    "Technique",
    "Unprotected",
    "parts_of",
    "predict",
    "predict_exactly",
    "read_profile",
]
