# xtrain_add_musa_kernels: the kernels of the musa device in a library, compiled by Moore Threads' mcc; programs that link it are compiled by any C++ compiler.
# Not run: no mcc was at hand.
#
#   xtrain_add_musa_kernels([ARCHITECTURES <number>...])
#   target_link_libraries(my_program PRIVATE xtrain::xtrain xtrain::musa_kernels)
#
#   ARCHITECTURES  21 (S80), 22 (S4000), 31 (S5000); default: the variable XTRAIN_MUSA_ARCHITECTURES, or 22 31
#
# mcc is found in the folder MUSA_PATH of CMake or of the environment, or /usr/local/musa. XTRAIN_MCC_OPTIONS: more options for it.

# _xtrain_find_musa(<result>): finds mcc and libmusart; sets <result> to a sentence that says what is missing, or to nothing
macro(_xtrain_find_musa result)
  set(${result} "")
  find_program(XTRAIN_MCC mcc HINTS "${MUSA_PATH}/bin" ENV MUSA_PATH PATHS /usr/local/musa PATH_SUFFIXES bin DOC "Moore Threads' compiler")
  find_library(XTRAIN_MUSART_LIBRARY musart HINTS "${MUSA_PATH}/lib" ENV MUSA_PATH PATHS /usr/local/musa PATH_SUFFIXES lib DOC "MUSA's runtime")
  if(NOT XTRAIN_MCC OR NOT XTRAIN_MUSART_LIBRARY)
    set(${result} "needs mcc and libmusart of Moore Threads' MUSA SDK; pass -D MUSA_PATH=<folder> if it is not /usr/local/musa")
  endif()
endmacro()

function(xtrain_add_musa_kernels)
  if(TARGET xtrain::musa_kernels)
    return()
  endif()
  cmake_parse_arguments(T "" "" "ARCHITECTURES" ${ARGN})
  if(T_UNPARSED_ARGUMENTS OR T_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "xtrain_add_musa_kernels: takes ARCHITECTURES with numbers such as 22 31, or nothing; given: ${ARGN}")
  endif()
  if(NOT T_ARCHITECTURES)
    set(T_ARCHITECTURES 22 31)
    if(XTRAIN_MUSA_ARCHITECTURES)
      set(T_ARCHITECTURES ${XTRAIN_MUSA_ARCHITECTURES})
    endif()
  endif()
  foreach(number ${T_ARCHITECTURES})
    if(NOT number MATCHES "^(21|22|31)$")
      message(FATAL_ERROR "xtrain_add_musa_kernels: ARCHITECTURES must be among 21, 22, 31; given: ${number}")
    endif()
    list(APPEND options --offload-arch=mp_${number})
  endforeach()
  _xtrain_find_musa(missing)
  if(missing)
    message(FATAL_ERROR "xtrain_add_musa_kernels: ${missing}")
  endif()
  list(JOIN T_ARCHITECTURES "," architectures)
  list(APPEND options -x musa -std=c++20 -O3 -DXTRAIN_MUSA_KERNELS "-DXTRAIN_MUSA_ARCHITECTURES=${architectures}" ${XTRAIN_MCC_OPTIONS})
  if(CMAKE_POSITION_INDEPENDENT_CODE)
    list(APPEND options -fPIC)
  endif()
  set(source "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/cuda_kernels.cu")
  set(folders "$<REMOVE_DUPLICATES:$<FILTER:$<TARGET_PROPERTY:xtrain::xtrain,INTERFACE_INCLUDE_DIRECTORIES>,EXCLUDE,^/usr/include$>>")
  set(parts 30)  # of cuda_kernels.cu
  math(EXPR last_part "${parts} - 1")
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/xtrain_musa_kernels")
  file(MAKE_DIRECTORY "${folder}")
  foreach(part RANGE ${last_part})
    set(object "${folder}/part_${part}${CMAKE_CXX_OUTPUT_EXTENSION}")
    add_custom_command(
      OUTPUT "${object}"
      COMMAND "${XTRAIN_MCC}" ${options} -DXTRAIN_CUDA_PART=${part} -DXTRAIN_CUDA_PARTS=${parts} "-I$<JOIN:${folders},;-I>" -MD -MF "${object}.d"
              -c "${source}" -o "${object}"
      DEPENDS "${source}"
      DEPFILE "${object}.d"
      COMMENT "Compiling the musa device's kernels, part ${part} of ${parts}"
      COMMAND_EXPAND_LISTS VERBATIM)
    list(APPEND objects "${object}")
  endforeach()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  add_library(xtrain_musa_kernels STATIC EXCLUDE_FROM_ALL ${objects})
  set_target_properties(xtrain_musa_kernels PROPERTIES LINKER_LANGUAGE CXX XTRAIN_COMPILED_BY "${XTRAIN_MCC} for ${T_ARCHITECTURES}")
  target_link_libraries(xtrain_musa_kernels PUBLIC xtrain::xtrain "${XTRAIN_MUSART_LIBRARY}" ${CMAKE_DL_LIBS})
  target_compile_definitions(xtrain_musa_kernels INTERFACE XTRAIN_MUSA_KERNELS)
  add_library(xtrain::musa_kernels ALIAS xtrain_musa_kernels)
endfunction()
