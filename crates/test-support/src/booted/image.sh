# Builds the tree of every booted host, and a folder of packages beside it:
#   image.sh FOLDER MIRROR SUITE "BASE PACKAGES" "PACKAGES FOR TESTS"
# The digest of this text and of the lists names the folder (image.rs).
set -eu
folder=$1 mirror=$2 suite=$3 base=$4 packages=$5
root=$folder/root

debootstrap --variant=minbase --include="$(echo "$base" | tr ' ' ,)" "$suite" "$root" "$mirror"

# Each by itself, as some of them exclude each other; what they depend on comes along.
cp /etc/resolv.conf "$root/etc/resolv.conf"
apt() { chroot "$root" apt-get -q -o APT::Sandbox::User=root -o Acquire::Check-Valid-Until=false "$@"; }
rm -f "$root"/var/cache/apt/archives/*.deb
apt update
for package in $packages; do
  apt install --yes --no-install-recommends --download-only "$package"
done
mkdir "$folder/packages"
mv "$root"/var/cache/apt/archives/*.deb "$folder/packages/"
(cd "$folder/packages" && dpkg-scanpackages --multiversion . >Packages)

# Hosts install from folders alone: Debian's packages, and those that a test makes.
apt clean
rm -rf "$root"/var/lib/apt/lists/*
mkdir -p "$root/srv/packages/debian" "$root/srv/packages/test"
cat >"$root/etc/apt/sources.list" <<'LIST'
deb [trusted=yes] file:/srv/packages/debian ./
deb [trusted=yes] file:/srv/packages/test ./
LIST

# Every host is its own machine.
rm -f "$root/var/lib/dbus/machine-id" "$root/etc/hostname" "$root/etc/resolv.conf"
: >"$root/etc/machine-id"
