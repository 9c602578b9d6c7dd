#!/bin/sh
. "$1"
before=$(cat "$path" 2>/dev/null)
changed=false
if [ "$before" != "$word" ]; then
    changed=true
    [ "$_ansible_check_mode" = True ] || echo "$word" > "$path"
fi
echo "a line that is no JSON"
echo "{\"changed\": $changed, \"before\": \"$before\"}"
