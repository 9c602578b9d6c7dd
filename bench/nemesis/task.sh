#!/bin/bash
# One task of the load: it notes each step of its life, synced, in a file that rm does not know.
# task.sh DIRECTORY SECONDS EXIT_CODE STUBBORN
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
file=$1/${job:-$SLURM_JOB_ID}.$RM_ATTEMPT.$SLURM_PROCID
note() { echo "$1 $EPOCHREALTIME ${*:2}" >>"$file"; sync "$file"; }
LC_ALL=C
if [ "$4" = 1 ]; then trap 'note T' TERM; else trap 'note T; exit 143' TERM; fi
note S "$SLURMD_NODENAME" "${RM_GPUS:--}" "$SLURM_CPUS_PER_TASK"
echo "first line of $SLURM_JOB_NAME, rank $SLURM_PROCID"
end=$((${EPOCHREALTIME/./} + $2 * 100000))
while [ "${EPOCHREALTIME/./}" -lt "$end" ]; do
    sleep 0.5 &
    wait $!
    echo "B $EPOCHREALTIME" >>"$file"
done
echo "last line of $SLURM_JOB_NAME, rank $SLURM_PROCID"
note E "$3"
exit "$3"
