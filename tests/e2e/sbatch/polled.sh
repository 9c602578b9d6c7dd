#!/bin/bash
#= submit bash polled.bash
#= state COMPLETED
#= line it ran
#= line then COMPLETED 0:0
#= line and FAILED 7:0
#= line gone from the queue
cat "$1"
