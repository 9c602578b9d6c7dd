#!/bin/sh
#SBATCH --job-name=contained
#SBATCH --container-image=./image
#SBATCH --container-mounts=/etc/hostname:/host/name:ro
#SBATCH --container-workdir=/host
#SBATCH --time=10
#= needs podman
#= submit make_image.sh image && sbatch --parsable container.sh
#= state COMPLETED
#= line the image of the lab
#= line job contained on z1h[1-3] in /host
cat /etc/which-image
echo "job $SLURM_JOB_NAME on $(cat name) in $(pwd)"
