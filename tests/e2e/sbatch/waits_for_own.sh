#!/bin/bash
#SBATCH --job-name=waits-for-own
#SBATCH --clusters=all
# a driver that waits for what it submits, and parses what sbatch and sacct say
#= submit sbatch --parsable waits_for_own.sh | cut -d ';' -f 1
#= state COMPLETED
#= line [0-9]+;[a-z]+
#= line single 7
#= line array 2
#= line FAILED 7:0
sbatch --parsable --clusters=all --hold --output=/dev/null --wrap true | tee held
scancel "$(cut -d ';' -f 1 held)"
sbatch --quiet --wait --output=/dev/null --job-name=own-single --wrap 'exit 7'
echo "single $?"
sbatch --quiet --wait --output=/dev/null --array=0-2 --wrap 'exit $SLURM_ARRAY_TASK_ID'
echo "array $?"
sacct --name=own-single --allocations --noheader --parsable2 --format=State,ExitCode | tail -n 1 | tr '|' ' '
