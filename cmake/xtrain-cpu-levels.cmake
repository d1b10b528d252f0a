# xtrain_add_cpu_levels: kernels for many processors in one program.
#
#   xtrain_add_cpu_levels()
#   target_link_libraries(my_program PRIVATE xtrain::xtrain xtrain::cpu_levels)
#
# Compiles the cpu device's kernels four times: for any x86-64 processor, AVX2 with FMA, AVX-512, and AVX-512 with bf16 products. A program runs the best level
# of its processor, or the level in the environment variable XTRAIN_CPU_LEVEL. The program itself is compiled for any processor.
#
# Needs GNU ld and objcopy: functions common to several levels (as the standard library's) are made local to each, or the linker could keep a copy that only
# new processors run.

function(xtrain_add_cpu_levels)
  if(TARGET xtrain::cpu_levels)
    return()
  endif()
  if(ARGN)
    message(FATAL_ERROR "xtrain_add_cpu_levels: takes no arguments; given: ${ARGN}")
  endif()
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    message(FATAL_ERROR "xtrain_add_cpu_levels: the levels are those of x86-64; this is ${CMAKE_SYSTEM_PROCESSOR}. Compile the program for its "
                        "processor instead (xtrain::native).")
  endif()
  # CMake's choice may be LLVM's linker, which cannot dissolve the groups of shared functions
  find_program(XTRAIN_GNU_LD NAMES ld.bfd x86_64-linux-gnu-ld.bfd ld)
  find_program(XTRAIN_GNU_OBJCOPY NAMES x86_64-linux-gnu-objcopy objcopy)
  mark_as_advanced(XTRAIN_GNU_LD XTRAIN_GNU_OBJCOPY)
  if(NOT XTRAIN_GNU_OBJCOPY OR NOT XTRAIN_GNU_LD)
    message(FATAL_ERROR "xtrain_add_cpu_levels: GNU ld and objcopy must be there (Debian and Ubuntu: binutils)")
  endif()
  set(avx2 -mavx2 -mfma -mf16c)
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd)
  set(flags_of_baseline "")
  set(flags_of_avx2 ${avx2})
  set(flags_of_avx512 ${avx512})
  set(flags_of_avx512_bf16 ${avx512} -mavx512bf16)
  set(objects "")
  foreach(level baseline avx2 avx512 avx512_bf16)
    set(compiled xtrain_cpu_level_${level})
    add_library(${compiled} OBJECT EXCLUDE_FROM_ALL "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/cpu_level.cpp")
    target_link_libraries(${compiled} PRIVATE xtrain::xtrain)
    target_compile_definitions(${compiled} PRIVATE XTRAIN_CPU_LEVEL=${level})
    target_compile_options(${compiled} PRIVATE ${flags_of_${level}} $<$<NOT:$<CONFIG:Debug>>:-O3> $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
    set_target_properties(${compiled} PROPERTIES POSITION_INDEPENDENT_CODE ON INTERPROCEDURAL_OPTIMIZATION OFF)
    set(object "${CMAKE_CURRENT_BINARY_DIR}/xtrain_cpu_level_${level}.o")
    add_custom_command(
      OUTPUT "${object}"
      COMMAND "${XTRAIN_GNU_LD}" -r --force-group-allocation -o "${object}" "$<TARGET_OBJECTS:${compiled}>"
      COMMAND "${XTRAIN_GNU_OBJCOPY}" --wildcard "--keep-global-symbol=*6xtrain10cpu_levels8at_level*"
              "--keep-global-symbol=*6xtrain10cpu_levels5facts*" "${object}"
      DEPENDS ${compiled} "$<TARGET_OBJECTS:${compiled}>"
      COMMENT "Kernels for ${level}"
      VERBATIM)
    set_source_files_properties("${object}" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    list(APPEND objects "${object}")
  endforeach()
  add_library(xtrain_cpu_levels STATIC EXCLUDE_FROM_ALL ${objects})
  set_target_properties(xtrain_cpu_levels PROPERTIES LINKER_LANGUAGE CXX)
  target_compile_definitions(xtrain_cpu_levels INTERFACE XTRAIN_CPU_LEVELS)
  target_link_libraries(xtrain_cpu_levels INTERFACE xtrain::xtrain)
  add_library(xtrain::cpu_levels ALIAS xtrain_cpu_levels)
endfunction()
