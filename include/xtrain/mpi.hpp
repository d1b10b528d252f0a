// Component 'mpi': ranks that are processes, on one host or several.
#pragma once

#if defined XTRAIN_TARGET && !defined XTRAIN_TARGET_MPI
#error "xtrain: a target with a source that includes <xtrain/mpi.hpp> must link xtrain::mpi: call target_link_libraries"
#endif

#include <xtrain/comm/mpi.hpp>
