#!/bin/bash
#SBATCH -J report
#= submit bash chain_arrays.bash
#= state COMPLETED
#= line late PENDING BeginTime
#= line held A_\[0-3%2\] PD JobHeldUser
#= line record JobState=PENDING Reason=BeginTime Requeue=1 Restarts=0 end
#= line never PD DependencyNeverSatisfied
#= line sweep A_0 COMPLETED 0:0
#= line sweep A_2 FAILED 1:0
#= line corr 1 corr\|CANCELLED
#= line corr 3 corr\|COMPLETED
#= line any\|FAILED\|4:0
#= line late\|CANCELLED.*
#= line never\|CANCELLED.*
#= line soon\|COMPLETED
#= line A_1 swe\+
#= line A_1\.batch bat\+
#= line sbatch --wait ended with 6
cat "$1"
