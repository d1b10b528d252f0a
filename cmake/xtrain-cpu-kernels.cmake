# xtrain_add_cpu_kernels: the kernels of the cpu device in a library.
#
#   xtrain_add_cpu_kernels([NATIVE])
#   target_link_libraries(my_program PRIVATE xtrain::xtrain xtrain::cpu_kernels)
#
# Optimized in every configuration: debug builds train at almost full speed. NATIVE compiles them, and programs that link them, for this processor
# (xtrain::native): kernels and programs must be compiled for the same processor.

function(xtrain_add_cpu_kernels)
  if(TARGET xtrain::cpu_kernels)
    return()
  endif()
  cmake_parse_arguments(T "NATIVE" "" "" ${ARGN})
  if(T_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "xtrain_add_cpu_kernels: takes NATIVE or nothing; given: ${ARGN}")
  endif()
  add_library(xtrain_cpu_kernels STATIC EXCLUDE_FROM_ALL "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/cpu_kernels.cpp")
  target_link_libraries(xtrain_cpu_kernels PUBLIC xtrain::xtrain)
  if(T_NATIVE)
    if(NOT TARGET xtrain::native)
      message(FATAL_ERROR "xtrain_add_cpu_kernels: NATIVE needs the component 'native'; call find_package(xtrain COMPONENTS native)")
    endif()
    target_link_libraries(xtrain_cpu_kernels PUBLIC xtrain::native)
  endif()
  target_compile_options(xtrain_cpu_kernels PRIVATE -O3)
  target_compile_definitions(xtrain_cpu_kernels INTERFACE XTRAIN_CPU_KERNELS)
  add_library(xtrain::cpu_kernels ALIAS xtrain_cpu_kernels)
endfunction()
