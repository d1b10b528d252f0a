// Component 'mpi': ranks that are processes, on one host or several.
#pragma once

#include <xtrain/comm/mpi.hpp>
