"""The settings of OpenSSH's configuration (ssh_config(5)), in small letters: what rm makes of each.

One that is in neither set changes how a host is reached in a way that rm does not follow.
"""

from __future__ import annotations

# what rm does by itself, or what only a terminal, a forward or another way to log in would notice
NOTHING = frozenset(
    {
        "addkeystoagent", "batchmode", "canonicaldomains", "canonicalizefallbacklocal",
        "canonicalizehostname", "canonicalizemaxdots", "canonicalizepermittedcnames",
        "casignaturealgorithms", "challengeresponseauthentication", "checkhostip", "ciphers",
        "clearallforwardings", "compression", "connectionattempts", "controlmaster", "controlpath",
        "controlpersist", "dynamicforward", "enableescapecommandline", "enablesshkeysign", "escapechar",
        "exitonforwardfailure", "fingerprinthash", "forwardagent", "forwardx11", "forwardx11timeout",
        "forwardx11trusted", "gatewayports", "gssapiauthentication", "gssapiclientidentity",
        "gssapidelegatecredentials", "gssapikexalgorithms", "gssapikeyexchange",
        "gssapirenewalforcesrekey", "gssapiserveridentity", "gssapitrustdns", "hashknownhosts",
        "hostbasedacceptedalgorithms", "hostbasedauthentication", "hostkeyalgorithms", "ignoreunknown",
        "ipqos", "kbdinteractiveauthentication", "kexalgorithms", "localcommand", "localforward",
        "loglevel", "logverbose", "macs", "numberofpasswordprompts", "obscurekeystroketiming",
        "passwordauthentication", "permitlocalcommand", "permitremoteopen", "preferredauthentications",
        "pubkeyacceptedalgorithms", "pubkeyauthentication", "rekeylimit", "remoteforward", "requesttty",
        "requiredrsasize", "sendenv", "serveralivecountmax", "serveraliveinterval", "setenv", "stdinnull",
        "streamlocalbindmask", "streamlocalbindunlink", "stricthostkeychecking", "syslogfacility", "tag",
        "tcpkeepalive", "tunneldevice", "updatehostkeys", "verifyhostkeydns", "versionaddendum",
        "visualhostkey", "xauthlocation",
    }
)  # fmt: skip
FOLLOWED = frozenset(
    {
        "connecttimeout", "globalknownhostsfile", "host", "hostkeyalias", "hostname", "identitiesonly",
        "identityfile", "port", "proxycommand", "proxyjump", "user", "userknownhostsfile",
    }
)  # fmt: skip
