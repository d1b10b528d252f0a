# Compilation of this project's tests, examples and benchmarks: every warning is an error. Not for users.

if(XTRAIN_MISSING_text)
  message(FATAL_ERROR "${XTRAIN_MISSING_text}")
endif()

add_library(xtrain_portable_programs INTERFACE)  # for any processor of the kind
target_compile_options(xtrain_portable_programs INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
# less garbage collection of g++: a tenth faster, a fourth more memory, at most 1.5 GB
target_compile_options(xtrain_portable_programs INTERFACE "$<$<CXX_COMPILER_ID:GNU>:SHELL:--param ggc-min-heapsize=1500000>")
add_library(xtrain_optimised_programs INTERFACE)  # with kernels and loops of their own
target_link_libraries(xtrain_optimised_programs INTERFACE xtrain_portable_programs)
add_library(xtrain_own_programs INTERFACE)  # models and trainers: much to instantiate, little to compute beside kernels
if(XTRAIN_NATIVE)
  target_link_libraries(xtrain_optimised_programs INTERFACE xtrain::native)
endif()
if(XTRAIN_COMPILED_LIBRARY)
  if(XTRAIN_NATIVE)
    xtrain_add_library(NATIVE)
  else()
    xtrain_add_library()
  endif()
  target_link_libraries(xtrain_own_programs INTERFACE xtrain_portable_programs xtrain::library)
  target_compile_options(xtrain_own_programs INTERFACE $<IF:$<CONFIG:Release>,-O1,-O0>)
else()
  target_link_libraries(xtrain_own_programs INTERFACE xtrain_optimised_programs)
endif()

# xtrain_share_headers(<program>...): the programs share a precompiled header of the library and CLI11, otherwise a third of their compile time. Only for
# programs without options of their own. Without the compiled library it does nothing: g++ would warn of its own intrinsics in kernels.
if(XTRAIN_COMPILED_LIBRARY)
  set(source "${PROJECT_BINARY_DIR}/own_headers.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "// A source file for the precompiled header.\n")
  add_library(xtrain_own_headers STATIC EXCLUDE_FROM_ALL "${source}")
  target_link_libraries(xtrain_own_headers PRIVATE xtrain_own_programs)
  target_precompile_headers(xtrain_own_headers PRIVATE <xtrain/text.hpp>)
  if(TARGET CLI11::CLI11)
    target_link_libraries(xtrain_own_headers PRIVATE CLI11::CLI11)
    target_precompile_headers(xtrain_own_headers PRIVATE <CLI/CLI.hpp>)
  endif()
endif()
function(xtrain_share_headers)
  if(TARGET xtrain_own_headers)
    foreach(program ${ARGN})
      target_precompile_headers(${program} REUSE_FROM xtrain_own_headers)
    endforeach()
  endif()
endfunction()
