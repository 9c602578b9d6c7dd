#!/bin/sh
# Makes sure of the system packages that a purpose needs. As root on Debian or Ubuntu it installs what
# is missing; otherwise it prints the exact command and stops.
#   scripts/prerequisites.sh venv|lab|test
set -eu

purpose=${1:-lab}
missing=
need() { # need COMMAND PACKAGE
    PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
if ! command -v python3 >/dev/null 2>&1; then
    missing="$missing python3 python3-venv"
elif ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "rm needs Python 3.11 or newer, but python3 here is $(python3 --version 2>&1)." >&2
    echo "Put a newer one first in PATH as python3, or use Debian 12, Ubuntu 24.04 or newer." >&2
    exit 1
elif ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    missing="$missing python3-venv"
fi
case $purpose in
venv) ;;
lab | test)
    need ip iproute2
    need tc iproute2
    need nft nftables
    need sshd openssh-server
    need ssh-keygen openssh-client
    need unshare util-linux
    need pkill procps
    [ "$(id -u)" = 0 ] || need newuidmap uidmap
    ;;
*)
    echo "scripts/prerequisites.sh does not know '$purpose': say venv, lab or test." >&2
    exit 2
    ;;
esac
if [ "$purpose" = test ]; then
    # the store is tested on a real PostgreSQL, which the tests start by themselves
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || need initdb postgresql
    # the lab is also tried as an ordinary user
    need newuidmap uidmap
    need setpriv util-linux
    # the page is looked at with a real browser; elsewhere than in Debian it is no plain package
    if [ -r /etc/debian_version ] && ! grep -qi ubuntu /etc/os-release; then need chromium chromium; fi
    for shell in zsh fish; do need "$shell" "$shell"; done
    # what playbooks use on the lab's hosts, which see this machine's programs
    need sudo sudo
    need crontab cron
    need git git
    need rsync rsync
    need unzip unzip
    # jobs and steps in containers, of an image that is one program
    need podman podman
    need crun crun
    need catatonit catatonit
    need busybox busybox-static
    # the daemon's unit is run by a systemd of its own, in a namespace
    need systemd-analyze systemd
    # Ansible's apt, which ours is compared with, is written for the system's own Python and fetches this else
    if command -v apt-get >/dev/null 2>&1 && ! /usr/bin/python3 -c 'import apt' 2>/dev/null; then
        missing="$missing python3-apt"
    fi
fi
missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ' | sed 's/^ *//; s/ *$//')
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "These programs' packages are missing (Debian's names): $missing" >&2
    echo "Install what your system calls them, and run this again." >&2
    exit 1
fi
if [ "$(id -u)" != 0 ]; then
    echo "These system packages are missing: $missing" >&2
    echo "Install them and run this again:  sudo apt-get install -y --no-install-recommends $missing" >&2
    exit 1
fi
echo "Installing system packages: $missing"
# Only the programs are wanted: no service may start on this machine because of us.
policy=/usr/sbin/policy-rc.d
trap 'exit 130' INT TERM
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
case " $missing " in *" postgresql "*)
    if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
        mkdir -p /etc/postgresql-common
        echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
    fi
    ;;
esac
export DEBIAN_FRONTEND=noninteractive
install="apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold"
$install $missing >/dev/null 2>&1 || {
    echo "Refreshing the package lists first"
    apt-get update -qq
    $install $missing >/dev/null
}
