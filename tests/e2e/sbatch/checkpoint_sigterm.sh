#!/bin/bash
#SBATCH --job-name=sigterm
#SBATCH --time=1
#SBATCH --signal=B:TERM@45
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=sigterm-%j.out
#= state COMPLETED
#= file sigterm-%j.out
#= line start 0
#= line saved
#= once start 1
#= once resumed
on_term() {
    touch "sigterm-$SLURM_JOB_ID.ckpt"
    echo saved
    scontrol requeue "$SLURM_JOB_ID"
    exit 0
}
trap on_term TERM
echo "start ${SLURM_RESTART_COUNT:-0}"
if [ -e "sigterm-$SLURM_JOB_ID.ckpt" ]; then
    echo resumed
    exit 0
fi
sleep 600 & wait
