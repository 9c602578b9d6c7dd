#!/bin/bash
#= submit bash changed.bash
#= state COMPLETED
#= line before first normal_prio 10:00
#= line after second low_prio 20:00
#= line JobName=second Comment=low_prio NumNodes=1 TimeLimit=00:20:00
#= line held JobHeldUser Priority=0
#= line update of nothing ended with 1
cat "$1"
