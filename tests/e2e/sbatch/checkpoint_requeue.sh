#!/bin/bash
#SBATCH --job-name=checkpoint
#SBATCH --time=00:01:00
#SBATCH --signal=B:USR1@52
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=checkpoint-%j.out
#= state COMPLETED
#= file checkpoint-%j.out
#= line start 0
#= line saved after 0
#= line start 1
#= line resumed from epoch 3
restarts=${SLURM_RESTART_COUNT:-0}
echo "start $restarts"
save() {
    echo 3 > "epoch-$SLURM_JOB_ID"
    echo "saved after $restarts"
    scontrol requeue "$SLURM_JOB_ID"
    exit 0
}
trap save USR1
if [ -e "epoch-$SLURM_JOB_ID" ]; then
    echo "resumed from epoch $(cat "epoch-$SLURM_JOB_ID")"
    exit 0
fi
sleep 600 &
wait
