// says: beside a pipeline there must be data_parallel or zero<1>
#include <xtrain/parallel/pipeline.hpp>

#ifdef MISTAKE
using beside = xtrain::zero<2>;
#else
using beside = xtrain::zero<1>;
#endif
std::size_t size() { return sizeof(xtrain::pipeline<xtrain::gpipe, beside>::config); }
