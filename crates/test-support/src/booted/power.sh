# Runs one host until it powers off, is killed, or the test that started it ends:
#   power.sh FOLDER NAME UUID NETWORK-NAMESPACE LOWER CGROUP [BIND...]
# Standard input stays open as long as the test lives. Exits with nspawn's code; 0 is a power-off.
set -eu
folder=$1 name=$2 uuid=$3 namespace=$4 lower=$5 cgroup=$6
shift 6
export folder name uuid namespace lower

# A cgroup of its own in each tree, or hosts without a systemd outside collide.
for tree in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
  [ -e "$tree/cgroup.procs" ] || continue
  mkdir -p "$tree/$cgroup"
  echo $$ >"$tree/$cgroup/cgroup.procs"
done

# With a PID namespace around it, nothing of the host outlives the kill of this process, and with a
# mount namespace no mount does.
exec unshare --mount --pid --fork --kill-child sh -eu -c '
  exec 3<&0
  (cat <&3 >/dev/null; kill -KILL -1) &
  mount -t proc proc /proc
  mkdir -p /run/systemd/nspawn
  mount -t tmpfs tmpfs /run/systemd/nspawn
  rm -rf "$folder/work"
  mkdir "$folder/work"
  mount -t overlay overlay -o "lowerdir=$lower,upperdir=$folder/up,workdir=$folder/work,volatile" "$folder/root"
  while :; do
    code=0
    # A host may set its own network, and no other part of the kernel. It may ask who writes, as a machine may.
    SYSTEMD_NSPAWN_API_VFS_WRITABLE=network systemd-nspawn --quiet --directory="$folder/root" --boot \
      --network-namespace-path="/run/netns/$namespace" --register=no --keep-unit --machine="$name" \
      --uuid="$uuid" --console=pipe --capability=CAP_NET_ADMIN --system-call-filter="fanotify_init fanotify_mark" "$@" </dev/null >>"$folder/console.log" 2>&1 || code=$?
    # 133 asks for another boot.
    [ "$code" = 133 ] || exit "$code"
  done
' sh "$@"
