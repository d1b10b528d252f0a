# The source as a folder of a program's own build: warnings count, flags differ between translation units, one program is linked.
include("${CMAKE_CURRENT_LIST_DIR}/package.cmake")
file(REMOVE_RECURSE "${SCRATCH}/subdirectory")
configures("${consumers}/subdirectory" subdirectory -D XTRAIN_SOURCE=${SOURCE})
builds(subdirectory)
must_run("${SCRATCH}/subdirectory/plain_first")
must_run("${SCRATCH}/subdirectory/optimised_first")

file(READ "${SCRATCH}/subdirectory/xtrain-recipes/train_text/recipe.hpp" recipe)
if(NOT recipe MATCHES "using precision = xtrain::bf16_mixed;")
  message(FATAL_ERROR "xtrain_add_trainer must write the precision into the recipe; it wrote: ${recipe}")
endif()

# A program's own installation has nothing of ours in it.
must_run("${CMAKE_COMMAND}" --install "${SCRATCH}/subdirectory" --prefix "${SCRATCH}/subdirectory/prefix")
if(EXISTS "${SCRATCH}/subdirectory/prefix/include")
  message(FATAL_ERROR "xtrain must not be installed with a program that only builds with it")
endif()
