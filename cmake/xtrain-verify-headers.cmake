# Makes all_verify_interface_header_sets: every header compiles by itself, under the warnings of this project. It is no part of 'all';
# the test static.headers builds it. The first time costs about two minutes of one processor under each compiler, later only what a
# change touches, which is why these are objects and not a run of -fsyntax-only per header.
foreach(target xtrain xtrain_io xtrain_text xtrain_mpi xtrain_openmp)
  get_target_property(missing ${target} XTRAIN_MISSING)
  if(NOT missing)
    set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  endif()
endforeach()
# CMake makes the targets when it generates, with the options of this directory, which has no other programs. Templates are not
# instantiated, so optimization would be of no use.
get_target_property(warnings xtrain_portable_programs INTERFACE_COMPILE_OPTIONS)
add_compile_options(${warnings} -O0)
