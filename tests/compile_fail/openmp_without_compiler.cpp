// says: xtrain openmp: the compiler's OpenMP must be on
#ifndef MISTAKE
#define _OPENMP 201511
#endif
#include <xtrain/openmp.hpp>
