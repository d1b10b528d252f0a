# How this project compiles its own tests, examples and benchmarks: every warning is an error. Users get none of this.

if(XTRAIN_MISSING_text)
  message(FATAL_ERROR "${XTRAIN_MISSING_text}")
endif()

add_library(xtrain_portable_programs INTERFACE)  # for any processor of the kind
target_compile_options(xtrain_portable_programs INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
add_library(xtrain_own_programs INTERFACE)
target_link_libraries(xtrain_own_programs INTERFACE xtrain_portable_programs)
if(XTRAIN_NATIVE)
  target_link_libraries(xtrain_own_programs INTERFACE xtrain::native)
endif()
