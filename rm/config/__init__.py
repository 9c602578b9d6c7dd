"""Configuration: defaults < rm.toml < environment (RM_SECTION__KEY) < flags, into one frozen Config.

All problems raise ConfigError, which names the file and line, the variable or the flag.
"""

from rm.config.checks import licenses, partition_fences
from rm.config.loading import Loaded, load, load_config, options_for, policy_options
from rm.config.sections import (
    LISTED_TABLES,
    OPEN_TABLES,
    SECTIONS,
    AlertsConfig,
    AuditConfig,
    Config,
    DaemonConfig,
    FabricConfig,
    FenceConfig,
    HostsConfig,
    HttpsConfig,
    JobsConfig,
    LimitsConfig,
    MonitorConfig,
    PlaybooksConfig,
    PoliciesConfig,
    PrivacyConfig,
    RolesConfig,
    ShapingConfig,
    SharingConfig,
    SshConfig,
    WebConfig,
)
from rm.config.values import flatten

__all__ = [
    "LISTED_TABLES",
    "OPEN_TABLES",
    "SECTIONS",
    "AlertsConfig",
    "AuditConfig",
    "Config",
    "DaemonConfig",
    "FabricConfig",
    "FenceConfig",
    "HostsConfig",
    "HttpsConfig",
    "JobsConfig",
    "LimitsConfig",
    "Loaded",
    "MonitorConfig",
    "PlaybooksConfig",
    "PoliciesConfig",
    "PrivacyConfig",
    "RolesConfig",
    "ShapingConfig",
    "SharingConfig",
    "SshConfig",
    "WebConfig",
    "flatten",
    "licenses",
    "load",
    "load_config",
    "options_for",
    "partition_fences",
    "policy_options",
]
