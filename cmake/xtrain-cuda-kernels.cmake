# xtrain_add_cuda_kernels: the kernels of the cuda device in a library, compiled by nvcc; programs that link it are compiled by any C++ compiler.
#
#   xtrain_add_cuda_kernels([ARCHITECTURES <number>...] [CUDNN])
#   target_link_libraries(my_program PRIVATE xtrain::xtrain xtrain::cuda_kernels)
#
#   ARCHITECTURES  compute capabilities, times ten; default: the variable XTRAIN_CUDA_ARCHITECTURES, or 80 90. A GPU newer
#                  than the last compiles the kernels when it is first used.
#   CUDNN          attention may be computed by cuDNN; default: if the package's component 'cudnn' was asked for and found. One more source, compiled by
#                  the C++ compiler in half a minute (target xtrain::cudnn, which xtrain::cuda_kernels links)
#
# nvcc is called directly: the project need not enable CUDA as a language. It compiles 30 parts, each with one processor and 0.5 GB.

include("${CMAKE_CURRENT_LIST_DIR}/xtrain-cuda-toolkit.cmake")

function(xtrain_add_cuda_kernels)
  if(TARGET xtrain::cuda_kernels)
    return()
  endif()
  cmake_parse_arguments(T "CUDNN" "" "ARCHITECTURES" ${ARGN})
  if(T_UNPARSED_ARGUMENTS OR T_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "xtrain_add_cuda_kernels: takes ARCHITECTURES with numbers such as 80 90, and CUDNN, or nothing; given: ${ARGN}")
  endif()
  if(NOT T_ARCHITECTURES)
    set(T_ARCHITECTURES 80 90)
    if(XTRAIN_CUDA_ARCHITECTURES)
      set(T_ARCHITECTURES ${XTRAIN_CUDA_ARCHITECTURES})
    endif()
  endif()
  foreach(number ${T_ARCHITECTURES})
    if(NOT number MATCHES "^[0-9]+$" OR number LESS 80)
      message(FATAL_ERROR "xtrain_add_cuda_kernels: ARCHITECTURES must be numbers of at least 80 (the kernels need tensor cores for bf16 and "
                          "asynchronous copies); given: ${number}")
    endif()
    list(APPEND generate "-gencode=arch=compute_${number},code=sm_${number}")
    set(last ${number})
  endforeach()
  list(APPEND generate "-gencode=arch=compute_${last},code=compute_${last}")

  _xtrain_find_cuda(missing)
  if(missing)
    message(FATAL_ERROR "xtrain_add_cuda_kernels: ${missing}")
  endif()
  if(T_CUDNN OR xtrain_cudnn_FOUND)
    _xtrain_find_cudnn(missing)
    if(missing)
      message(FATAL_ERROR "xtrain_add_cuda_kernels: CUDNN ${missing}")
    endif()
    add_library(xtrain_cudnn STATIC EXCLUDE_FROM_ALL "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/cudnn_attention.cpp")
    target_link_libraries(xtrain_cudnn PUBLIC xtrain::xtrain PRIVATE ${CMAKE_DL_LIBS})
    target_include_directories(xtrain_cudnn SYSTEM PRIVATE "${XTRAIN_CUDNN_FRONTEND}" "${XTRAIN_CUDNN_HEADER}" "${XTRAIN_CUDA_HEADER}")
    target_link_options(xtrain_cudnn INTERFACE "LINKER:--undefined=xtrain_cudnn_library")  # programs refer to it weakly
    add_library(xtrain::cudnn ALIAS xtrain_cudnn)
  endif()

  set(options -std=c++20 --expt-relaxed-constexpr -O3 ${generate})
  if(CMAKE_CUDA_HOST_COMPILER)
    list(APPEND options -ccbin "${CMAKE_CUDA_HOST_COMPILER}")
  elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND options -ccbin "${CMAKE_CXX_COMPILER}")
  endif()
  if(CMAKE_POSITION_INDEPENDENT_CODE)
    list(APPEND options -Xcompiler=-fPIC)
  endif()
  set(source "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/cuda_kernels.cu")
  set(folders "$<REMOVE_DUPLICATES:$<FILTER:$<TARGET_PROPERTY:xtrain::xtrain,INTERFACE_INCLUDE_DIRECTORIES>,EXCLUDE,^/usr/include$>>")
  set(parts 30)  # of cuda_kernels.cu
  math(EXPR last_part "${parts} - 1")
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/xtrain_cuda_kernels")
  file(MAKE_DIRECTORY "${folder}")
  foreach(part RANGE ${last_part})
    set(object "${folder}/part_${part}${CMAKE_CXX_OUTPUT_EXTENSION}")
    add_custom_command(
      OUTPUT "${object}"
      COMMAND ${CMAKE_CUDA_COMPILER_LAUNCHER} "${CUDAToolkit_NVCC_EXECUTABLE}" ${options} -DXTRAIN_CUDA_PART=${part} -DXTRAIN_CUDA_PARTS=${parts}
              "-I$<JOIN:${folders},;-I>" -MD -MF "${object}.d" -c "${source}" -o "${object}"
      DEPENDS "${source}"
      DEPFILE "${object}.d"
      COMMENT "Compiling the cuda device's kernels, part ${part} of ${parts}"
      COMMAND_EXPAND_LISTS VERBATIM)
    list(APPEND objects "${object}")
  endforeach()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  add_library(xtrain_cuda_kernels STATIC EXCLUDE_FROM_ALL ${objects})
  set_target_properties(xtrain_cuda_kernels PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(xtrain_cuda_kernels PUBLIC xtrain::xtrain CUDA::cudart_static)
  if(TARGET xtrain_cudnn)
    target_link_libraries(xtrain_cuda_kernels PUBLIC xtrain_cudnn)
  endif()
  target_compile_definitions(xtrain_cuda_kernels INTERFACE XTRAIN_CUDA_KERNELS)
  set_target_properties(xtrain_cuda_kernels PROPERTIES XTRAIN_COMPILED_BY "nvcc ${CUDAToolkit_VERSION} for ${T_ARCHITECTURES}")
  add_library(xtrain::cuda_kernels ALIAS xtrain_cuda_kernels)
endfunction()
