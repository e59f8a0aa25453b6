#!/bin/bash
# Run by the fixture as root inside new mount, net, ipc, uts and pid namespaces: puts a small root together (read-only binds of the host's programs,
# private everything else), a lo-only network in which every address is local, then becomes UID without any capability and execs openshell-sandbox as
# PID 1. What the process driver does in the product, in 40 lines.
#   enter-root.sh ROOT BUNDLE MATERIAL CHANNEL UID ARGUMENTS...
set -euo pipefail
root=$1 bundle=$2 material=$3 channel=$4 uid=$5
shift 5
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$root"
mkdir -p "$root"/{usr,etc,tmp,run/openshell-supervisor-ca,run/openshell/providers,sandbox,proc,dev,.openshell/{bin,sandbox,channel}}
mount --bind -o ro /usr "$root/usr"
mount --bind -o ro /etc "$root/etc"
for directory in bin sbin lib lib32 lib64; do
  if [ -L "/$directory" ]; then cp -P "/$directory" "$root/$directory"; fi
done
for node in null zero random urandom; do
  touch "$root/dev/$node"
  mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir -p "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t proc proc "$root/proc"
mount --bind -o ro "$bundle" "$root/.openshell/bin"
mount --bind "$material" "$root/.openshell/sandbox"
mount --bind "$channel" "$root/.openshell/channel"
chown -R "$uid:$uid" "$root/sandbox" "$root/run/openshell-supervisor-ca" "$root/run/openshell/providers"
chown "$uid:$uid" "$root/.openshell"
chmod 0700 "$root/.openshell"
chmod 1777 "$root/tmp"
ip link set lo up
sysctl -qw net.ipv4.ip_unprivileged_port_start=0 net.ipv6.ip_nonlocal_bind=1
ip addr add 192.0.2.1/32 dev lo noprefixroute
ip -6 addr add 2001:db8::1/128 dev lo nodad noprefixroute
ip route add local default dev lo src 192.0.2.1
ip -6 route add local default dev lo
cd /
exec chroot "$root" /usr/bin/setpriv --reuid "$uid" --regid "$uid" --clear-groups --bounding-set -all --inh-caps -all --ambient-caps -all \
  --no-new-privs /.openshell/bin/ld.so --library-path /.openshell/bin/lib /.openshell/bin/openshell-sandbox "$@"
