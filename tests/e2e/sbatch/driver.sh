#!/bin/bash
#SBATCH --job-name=driver --output=driver.txt
#= state COMPLETED
#= file driver.txt
#= line  +2 COMPLETED
#= line  +1 FAILED
#= line again 1
# submits its work from inside the job, waits for it in the queue, and submits again what failed
work() { sbatch --parsable --export=ALL,CODE="$1" --wrap 'exit $CODE'; }
until_gone() { while [ -n "$(squeue --noheader --jobs="$1" --format=%T)" ]; do sleep 1; done; }
first=$(work 0) second=$(work 5) third=$(work 0)
until_gone "$first,$second,$third"
sacct -n -X -P -o state -j "$first,$second,$third" | sort | uniq -c
for failed in $(sacct -n -X -P -o jobid -s FAILED -j "$first,$second,$third"); do
    again=$(work 0)
    until_gone "$again"
    [ "$failed" = "$second" ] && echo again "$(sacct -n -X -P -o state -j "$again" | wc -w)"
done
scontrol show job "$SLURM_JOB_ID" | grep -q 'JobState=RUNNING' && scancel --name=nothing-of-this-name
