"""A lab: hosts on this machine out of namespaces, each with a real sshd behind a shaped link."""

from rm.lab.lab import HostStatus, Lab
from rm.lab.launch import up
from rm.lab.spec import Degrade, LabHost, LabSpec, parse_degrade

load = Lab.load

__all__ = ["Degrade", "HostStatus", "Lab", "LabHost", "LabSpec", "load", "parse_degrade", "up"]
