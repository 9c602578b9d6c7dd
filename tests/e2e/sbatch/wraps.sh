#!/bin/bash
#= submit bash wraps.bash
#= state COMPLETED
#= line lr 0\.1 seed 1 name run_0\.1
#= line lr 0\.01 seed 1 name run_0\.01
#= line no variable of others
#= line 42 lines in
cat wraps-*.txt
