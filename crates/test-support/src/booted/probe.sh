# Tries what booted hosts need of the kernel, in a folder of its own; prints what is refused.
set -eu
folder=$1 name=$2
mkdir -p "$folder/up" "$folder/work" "$folder/root"
for tree in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
  [ -e "$tree/cgroup.procs" ] || continue
  mkdir "$tree/$name"
  rmdir "$tree/$name"
done
ip netns add "$name"
ip netns del "$name"
unshare --mount --pid --fork sh -eu -c '
  mount -t proc proc /proc
  mount -t overlay overlay -o "lowerdir=/usr,upperdir=$1/up,workdir=$1/work,volatile" "$1/root"
' sh "$folder"
