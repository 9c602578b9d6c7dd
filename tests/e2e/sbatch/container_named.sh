#!/bin/bash
#SBATCH --job-name=workshop
#SBATCH --nodes=1 --ntasks=2
#SBATCH --time=00:10:00
#= needs podman
#= state COMPLETED
#= line first: the image of the lab
#= line 0: found pip install
#= line 1: found pip install
#= line mounted here
#= line the image is as it was: yes
#= line other name: none
#= line without image: 1
#= line bad name: 1
export IMAGE=$PWD/image-named-$SLURM_JOB_ID
make_image.sh $IMAGE
mkdir -p tools-$SLURM_JOB_ID && echo "mounted here" > tools-$SLURM_JOB_ID/word

srun -n1 --container-image=$IMAGE --container-name=tools \
    sh -c 'echo "first: $(cat /etc/which-image)"; echo "pip install" > /opt-new'
srun -l -n2 --container-name=tools sh -c 'echo "found $(cat /opt-new)"'
srun -n1 --container-name=tools --container-mounts=$PWD/tools-$SLURM_JOB_ID:/tools --container-workdir=/tools cat word
echo "the image is as it was: $(test -e $IMAGE/opt-new && echo no || echo yes)"
srun -n1 --container-image=$IMAGE --container-name=other sh -c 'echo "other name: $(cat /opt-new 2>/dev/null || echo none)"'
srun -n1 --container-name=unknown true
echo "without image: $?"
srun -n1 --container-name=../x true
echo "bad name: $?"
