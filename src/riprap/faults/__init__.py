"""Fault injection: what a fault at each operator does to the answers."""

from riprap.faults.campaign import Campaign
from riprap.faults.campaign_file import read_campaign
from riprap.faults.campaign_run import Findings, inject, repeat
from riprap.faults.evaluation import Criticality
from riprap.faults.models import Corruption, Duplication, Lateness, Loss, Reordering
from riprap.faults.placement import find_targets
from riprap.faults.scores import Count, Mean, Overlap, Own, Rmse, Sum
from riprap.graph.faults import Crash, FaultModel, Replicas

__all__ = [
    "Campaign",
    "Corruption",
    "Count",
    "Crash",
    "Criticality",
    "Duplication",
    "FaultModel",
    "Findings",
    "Lateness",
    "Loss",
    "Mean",
    "Overlap",
    "Own",
    "Reordering",
    "Replicas",
    "Rmse",
    "Sum",
    "find_targets",
    "inject",
    "read_campaign",
    "repeat",
]
