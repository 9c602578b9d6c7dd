#!/bin/bash
#SBATCH -J again -t 2 --requeue --open-mode=append --signal=B:USR2@90 -n 2 -N 2
#= state COMPLETED
#= once run 0, restarts unset
#= once run 1, restarts 1
#= once run 2, restarts 2
#= line monitor saw step 0
#= once usr2 in run 0
#= once code 85 in run 1
#= line all shards done
run=${SLURM_RESTART_COUNT:-0}
echo "run $run, restarts ${SLURM_RESTART_COUNT-unset}"
again() {
    echo "$1 in run $run"
    scontrol requeue $SLURM_JOB_ID
    exit 0
}
trap 'again usr2' USR2
trap 'code=$?; [ $code -ne 85 ] || again "code $code"' EXIT
srun --overlap -n1 -N1 bash -c 'sleep 2; echo "monitor saw step $SLURM_STEP_ID"' &
monitor=$!
if [ $run = 0 ]; then
    srun --exact -n2 -N2 sleep 600 &  # until the signal, thirty seconds after the start
    wait
    wait
elif [ $run = 1 ]; then
    wait $monitor
    srun -n2 -N2 bash -c 'exit $((SLURM_PROCID * 85))'
    exit $?
fi
wait $monitor
echo "all shards done"
