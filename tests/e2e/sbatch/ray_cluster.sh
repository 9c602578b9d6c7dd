#!/bin/bash
#SBATCH --job-name=ray
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-task=2
#SBATCH --cpus-per-task=2
#SBATCH --time=10
#= state COMPLETED
#= line Starting HEAD at z1h\d
#= line Starting WORKER 2 at z1h\d
#= line the driver sees 3 nodes
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
nodes_array=($nodes)
head_node=${nodes_array[0]}
port=$((20000 + SLURM_JOB_ID % 10000))
ip_head=$head_node:$port
export ip_head
echo "Starting HEAD at $head_node"
srun --nodes=1 --ntasks=1 -w "$head_node" \
    ray start --head --node-ip-address="$head_node" --port=$port \
    --num-cpus="${SLURM_CPUS_PER_TASK}" --num-gpus="${SLURM_GPUS_PER_TASK}" --block &
sleep 1
worker_num=$((SLURM_JOB_NUM_NODES - 1))
for ((i = 1; i <= worker_num; i++)); do
    node_i=${nodes_array[$i]}
    echo "Starting WORKER $i at $node_i"
    srun --nodes=1 --ntasks=1 -w "$node_i" \
        ray start --address="$ip_head" --num-cpus="${SLURM_CPUS_PER_TASK}" --block &
    sleep 1
done
for _ in $(seq 100); do
    seen=$(ray status --address="$ip_head")
    [ "$seen" = "3 nodes" ] && break
    sleep 0.2
done
echo "the driver sees $seen"
