#!/bin/bash
#SBATCH --job-name=pyxis
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=00:10:00
#= needs podman
#= state COMPLETED
#= line outside: no
#= line 0: rank 0 of 2: the image of the lab
#= line 1: rank 1 of 2: the image of the lab
#= line result 0\.97
export IMAGE=$PWD/image-$SLURM_JOB_ID
make_image.sh $IMAGE
mkdir -p results-$SLURM_JOB_ID

test -e /etc/which-image && echo "outside: yes" || echo "outside: no"
srun --label --container-image=$IMAGE --container-mounts=$PWD/results-$SLURM_JOB_ID:/results \
    sh -c 'echo "rank $SLURM_PROCID of $SLURM_NTASKS: $(cat /etc/which-image)"; test $SLURM_PROCID != 0 || echo 0.97 > /results/accuracy'
echo "result $(cat results-$SLURM_JOB_ID/accuracy)"
