#!/bin/bash
#= submit bash salloc_codes.bash
#= state COMPLETED
#= line 1: on 2 hosts
#= line salloc of srun ended with 4
#= line salloc of a shell ended with 9
#= line salloc of nothing ended with 1
#= line salloc beyond the cluster ended with 1
#= line 0: step got USR2
#= line 1: step got USR2
#= line srun ended with 0
#= line batch got USR1
#= line J\|COMPLETED\|0:0
#= line J\.0\|COMPLETED\|0:0
#= line srun ended with 7
cat "$1"
