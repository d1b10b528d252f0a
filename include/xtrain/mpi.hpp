// Component 'mpi': ranks that are processes, on one host or on many.
#pragma once

#include <xtrain/comm/mpi.hpp>
