#!/bin/bash
#SBATCH --job-name=megatron
#SBATCH --nodes=2 --ntasks-per-node=2 --gpus-per-node=2 --cpus-per-task=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --output=%x_%j.out
#= state COMPLETED
#= file megatron_%j.out
#= line 0: tensor 0 pipeline 0 world 4 sees 1 of GPU
#= line 3: tensor 1 pipeline 1 world 4 sees 1 of GPU
#= line logs 4
#= line all see 2
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=6000
export CUDA_DEVICE_MAX_CONNECTIONS=1
mkdir -p megatron-logs-$SLURM_JOB_ID
run_cmd='echo "tensor $((SLURM_PROCID % 2)) pipeline $((SLURM_PROCID / 2)) world $SLURM_NTASKS sees $(echo $CUDA_VISIBLE_DEVICES | tr , "\n" | grep -c .) of GPU"'
srun -l --kill-on-bad-exit=1 --gpu-bind=single:1 --cpu-bind=none --mpi=none bash -c "$run_cmd"
srun --output=megatron-logs-$SLURM_JOB_ID/%x_%j_%t.log --gpu-bind=none bash -c 'echo $CUDA_VISIBLE_DEVICES'
echo "logs $(ls megatron-logs-$SLURM_JOB_ID/megatron_${SLURM_JOB_ID}_?.log | wc -l)"
echo "all see $(cat megatron-logs-$SLURM_JOB_ID/*.log | tr , '\n' | grep -c . | awk '{print $1 / 4}')"
