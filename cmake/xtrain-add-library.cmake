# xtrain_add_library: the library compiled once, for everything that links it.
#
#   xtrain_add_library([NATIVE])
#   target_link_libraries(my_program PRIVATE xtrain::text xtrain::library)
#
# Headers then declare. Definitions (*_impl.hpp), the cpu device's kernels, and training and generation of every decoder family in fp32 and bf16 on one rank,
# of all weights or a LoRA adapter, are compiled once (savings: bench/README.md), optimized in every configuration. Missing components (io, text, recipes) are
# left out. NATIVE compiles the library, and programs that link it, for this processor (xtrain::native). All sources of a program link the library, or none: a
# mix does not link.

function(xtrain_add_library)
  if(TARGET xtrain::library)
    return()
  endif()
  cmake_parse_arguments(T "NATIVE" "" "" ${ARGN})
  if(T_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "xtrain_add_library: takes NATIVE or nothing; given: ${ARGN}")
  endif()
  if(T_NATIVE)
    xtrain_add_cpu_kernels(NATIVE)
  else()
    xtrain_add_cpu_kernels()
  endif()
  set(sources core fp32 fp32_lora bf16 bf16_lora)
  list(TRANSFORM sources REPLACE "(.+)" "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/library_\\1.cpp")
  add_library(xtrain_library STATIC EXCLUDE_FROM_ALL ${sources})
  target_link_libraries(xtrain_library PUBLIC xtrain::xtrain xtrain::cpu_kernels)
  foreach(component io text recipes)
    if(TARGET xtrain::${component})
      get_target_property(missing xtrain::${component} XTRAIN_MISSING)
      if(NOT missing)
        target_sources(xtrain_library PRIVATE "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/library_${component}.cpp")
        if(component STREQUAL "io")  # in two: the memory of one compiler would be 1.8 GB
          target_sources(xtrain_library PRIVATE "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/library_data.cpp")
        endif()
        target_link_libraries(xtrain_library PUBLIC xtrain::${component})
        string(TOUPPER ${component} name)
        get_target_property(told xtrain::${component} INTERFACE_COMPILE_DEFINITIONS)
        if("XTRAIN_TARGET_${name}" IN_LIST told OR told MATCHES "BUILD_INTERFACE:XTRAIN_TARGET_${name}")
          target_compile_definitions(xtrain_library PUBLIC XTRAIN_LIBRARY_${name})
        endif()
      endif()
    endif()
  endforeach()
  target_compile_definitions(xtrain_library PUBLIC XTRAIN_LIBRARY)
  target_compile_options(xtrain_library PRIVATE -O2)
  add_library(xtrain::library ALIAS xtrain_library)
endfunction()
