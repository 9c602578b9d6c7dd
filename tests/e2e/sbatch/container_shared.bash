# On the login node: a script in a container with a name, and a step that looks into it.
make_image.sh image-shared
job=$(sbatch --parsable container_shared.sh) || exit
until srun -Q --jobid=$job --overlap -n1 --container-name=env sh -c 'cat /made && echo "from a step" > /left' 2> /dev/null; do
    sleep 1
    [ $((n++)) -lt 60 ] || break
done > /dev/null
echo $job
