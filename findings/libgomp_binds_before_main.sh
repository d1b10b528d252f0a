#!/bin/sh
# libgomp of g++ 12.2 (Debian 12): with OMP_PROC_BIND, a program with no parallel region has one processor before its first static object is made.
#
# One would expect: OMP_PROC_BIND places the threads of OpenMP's parallel regions; a program that only links OpenMP, and makes threads by std::thread,
#   has the processors that it was started with, at the latest until its first parallel region.
# What happens: the library binds the initial thread to its first place when it is loaded. sched_getaffinity() in a static initializer, and in every
#   std::thread, which inherits the mask, gives that place alone; std::thread::hardware_concurrency() counts all processors of the machine as before.
# What it means for a user: a pool of std::threads in a program that links OpenMP (by a BLAS, for example) may run on one processor, and no code of the
#   program runs early enough to see the process's own mask. Count OpenMP's places (omp_get_place_num_procs, omp_get_place_proc_ids) as well.
# Seen on 2026-11-28, g++ and libgomp 12.2.0-14+deb12u1. Needs two processors.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
cd "$dir"
[ "$(nproc)" -ge 2 ] || { echo "two processors are needed" >&2; exit 2; }
cat > mask.cpp << 'EOF'
#include <omp.h>
#include <sched.h>

#include <cstdio>
#include <thread>

static int processors() {
  cpu_set_t mask;
  sched_getaffinity(0, sizeof mask, &mask);
  return CPU_COUNT(&mask);
}
static const int in_initializer = processors();

int main() {
  int in_thread = 0;
  std::thread([&] { in_thread = processors(); }).join();
  int of_places = 0;
  for (int i = 0; i < omp_get_num_places(); ++i) of_places += omp_get_place_num_procs(i);
  std::printf("initializer %d, thread %d, hardware_concurrency %u, places %d\n", in_initializer > 1 ? 2 : 1, in_thread > 1 ? 2 : 1,
              std::thread::hardware_concurrency() > 1 ? 2u : 1u, of_places > 1 ? 2 : of_places);
}
EOF
echo "g++ $(g++ -dumpfullversion); numbers above 1 are printed as 2"
g++ -std=c++20 -fopenmp mask.cpp -o mask
unbound=$(env -u OMP_PROC_BIND -u OMP_PLACES ./mask)
bound=$(env -u OMP_PLACES OMP_PROC_BIND=close ./mask)
echo "without OMP_PROC_BIND: $unbound"
echo "OMP_PROC_BIND=close:   $bound"
[ "$unbound" = "initializer 2, thread 2, hardware_concurrency 2, places 0" ]
[ "$bound" = "initializer 1, thread 1, hardware_concurrency 2, places 2" ]
echo "as expected by this finding"
