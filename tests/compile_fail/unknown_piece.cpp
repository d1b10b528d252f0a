// says: xtrain recompute_selective: every argument must be one of norm_outputs, activation_outputs, attention_outputs
#include <xtrain/layers/recompute.hpp>

#ifdef MISTAKE
xtrain::recompute_selective<xtrain::norm_outputs, int> policy;
#else
xtrain::recompute_selective<xtrain::norm_outputs> policy;
#endif
