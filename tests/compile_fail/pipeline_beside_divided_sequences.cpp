// says: xtrain pipeline<Schedule, Beside>: Beside must not divide what lies between layers
#include <xtrain/parallel/pipeline.hpp>

#ifdef MISTAKE
using beside = xtrain::sequence_parallel;
#else
using beside = xtrain::zero<3>;
#endif
std::size_t size() { return sizeof(xtrain::pipeline<xtrain::gpipe, beside>::config); }
