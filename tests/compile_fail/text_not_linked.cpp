// says: xtrain: a target with a source that includes <xtrain/text.hpp> must link xtrain::text
// says: xtrain: xtrain_add_library() must be called after find_package(xtrain COMPONENTS io)
#define XTRAIN_TARGET
#define XTRAIN_TARGET_IO
#ifdef MISTAKE
#define XTRAIN_LIBRARY
#else
#define XTRAIN_TARGET_TEXT
#endif
#include <xtrain/text.hpp>
