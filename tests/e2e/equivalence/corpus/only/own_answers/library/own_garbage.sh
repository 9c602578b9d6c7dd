#!/bin/sh
. "$1"
case "$what" in
  garbage) echo "this is no JSON"; exit 0;;
  nothing) exit 0;;
  crash) echo "to stderr" >&2; exit 3;;
  around) echo "before"; echo '{"changed": true, "said": "'"$word"'"}'; exit 0;;
  failed) echo '{"failed": true, "msg": "by itself"}'; exit 0;;
  rc) echo '{"changed": false, "rc": 5}'; exit 0;;
esac
