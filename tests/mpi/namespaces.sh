#!/bin/sh
# Two hosts on one machine: network namespaces with a link between them, each with its own host name and Open MPI daemon. Run by hand, as root:
#
#   namespaces.sh FOLDER     the folder of mpi.transport and mpi.faults: build/dev/tests
set -eu
programs=$(cd "$1" && pwd)
scratch=$(mktemp -d)
if [ "$(id -u)" != 0 ] || ! ip netns add xtrain_a 2> /dev/null; then
  echo "skipped: network namespaces are made by root"
  exit 0
fi
finish() {
  for host in a b; do
    # shellcheck disable=SC2046  # a list of numbers
    kill -9 $(ip netns pids "xtrain_$host") 2> /dev/null || true
    ip netns del "xtrain_$host" 2> /dev/null || true
  done
  rm -rf "$scratch"
}
trap finish EXIT
ip netns add xtrain_b
ip link add xtrain_a netns xtrain_a type veth peer name xtrain_b netns xtrain_b
number=1
for host in a b; do
  ip -n "xtrain_$host" addr add "10.77.0.$number/24" dev "xtrain_$host"
  ip -n "xtrain_$host" link set "xtrain_$host" up
  ip -n "xtrain_$host" link set lo up
  # mpirun ends when the kernel gives up its daemons' connections: by default after a quarter of an hour
  ip netns exec "xtrain_$host" sysctl -q -w net.ipv4.tcp_retries2=5
  number=$((number + 1))
done

# mpirun's replacement of ssh: its first word is the host
cat > "$scratch/agent" << 'AGENT'
#!/bin/sh
shift
exec ip netns exec xtrain_b unshare --uts sh -c "hostname xtrain-b; $*"
AGENT
chmod +x "$scratch/agent"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm_rsh_agent="$scratch/agent" OMPI_MCA_btl_tcp_if_include=10.77.0.0/24
export OMPI_MCA_oob_tcp_if_include=10.77.0.0/24

# on_both SECONDS PROGRAM ARGUMENT...: two ranks on each host
on_both() {
  seconds=$1
  shift
  timeout -k 5 "$seconds" ip netns exec xtrain_a unshare --uts \
    sh -c 'hostname xtrain-a; exec mpirun -n 4 --oversubscribe --host 10.77.0.1:2,10.77.0.2:2 "$@"' - "$@"
}
bytes() { ip netns exec xtrain_a cat /sys/class/net/xtrain_a/statistics/tx_bytes; }

on_both 60 hostname
before=$(bytes)
on_both 120 "$programs/mpi.transport" > "$scratch/said" 2>&1 || { cat "$scratch/said"; exit 1; }
grep -c "SUCCESS" "$scratch/said" | sed 's/$/ ranks on two hosts pass/'
echo "$(($(bytes) - before)) bytes went over the wire from one of them"

# fails MODE: how and when the run ends
fails() {
  rm -f "$scratch"/rank_*
  on_both 100 "$programs/mpi.faults" "$scratch" "$1" > "$scratch/said" 2>&1 &
  run=$!
  until [ -s "$scratch/rank_0" ] && [ -s "$scratch/rank_3" ]; do sleep 0.1; done
  sleep 1
  began=$(date +%s)
  case $1 in
    reduces) kill -9 "$(cat "$scratch/rank_3")" ;;
    cut) ip -n xtrain_b link set xtrain_b down ;;
  esac
  status=0
  wait "$run" || status=$?
  echo "$1: status $status after $(($(date +%s) - began)) s: $(grep -m 2 -e '^mpi:' -e disk -e noticed -e lost "$scratch/said" | tr '\n' ' ')"
}
fails throws
fails hangs
fails reduces
fails cut
