#!/bin/sh
### BEGIN INIT INFO
# Provides:          lamp
# Required-Start:
# Required-Stop:
# Default-Start:     2 3 4 5
# Default-Stop:      0 1 6
# Short-Description: A lamp that is on or off
### END INIT INFO
case $1 in
start) touch /srv/lamp.on ;;
stop) rm -f /srv/lamp.on ;;
restart | reload | force-reload) touch /srv/lamp.on ;;
status)
    [ -e /srv/lamp.on ] && { echo "lamp is running"; exit 0; }
    echo "lamp is stopped"
    exit 3
    ;;
esac
