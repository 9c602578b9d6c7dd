#!/bin/sh
# Makes sure of the system packages that the lab and the tests need. As root on Debian or Ubuntu it
# installs what is missing; otherwise it prints the exact command and stops.
#   scripts/prerequisites.sh lab|test
set -eu

purpose=${1:-lab}
missing=
need() { # need COMMAND PACKAGE
    PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need ip iproute2
need tc iproute2
need nft nftables
need sshd openssh-server
need ssh-keygen openssh-client
need unshare util-linux
need pkill procps
[ "$(id -u)" = 0 ] || need newuidmap uidmap
python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
if [ "$purpose" = test ]; then
    # the store is tested on a real PostgreSQL, which the tests start by themselves
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1 ||
        missing="$missing postgresql"
    # the lab is also tried as an ordinary user
    need newuidmap uidmap
    need setpriv util-linux
    for shell in zsh fish; do need "$shell" "$shell"; done
fi
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "rm needs Python 3.11 or newer; python3 here is $(python3 --version 2>&1)." >&2
    exit 1
fi
missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
[ -n "${missing% }" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "These system packages are missing: $missing" >&2
    echo "Install them and run this again:  sudo apt-get install -y --no-install-recommends $missing" >&2
    exit 1
fi
echo "Installing system packages: $missing"
# Only the programs are wanted: no service may start on this machine because of us.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT INT TERM
fi
if [ ! -e /etc/postgresql-common/createcluster.conf ] && [ "$purpose" = test ]; then
    mkdir -p /etc/postgresql-common
    echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
fi
export DEBIAN_FRONTEND=noninteractive
apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 || {
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold $missing >/dev/null
}
