# xtrain_add_trainer: a program from one of the example trainers, or from a source like them, with chosen policies.
#
#   xtrain_add_trainer(NAME my_finetune SOURCE finetune.cpp PRECISION bf16_mixed)
#
#   NAME       of the target and the executable
#   SOURCE     a source file of yours, or the name of an example: pretrain.cpp, finetune.cpp, generate.cpp
#   DEVICE     cpu (default), or a type of yours
#   PRECISION  fp32 (default), bf16_mixed, bf16_pure, fp16_mixed, or a type of yours
#   PARALLEL   single (default), or a type of yours
#   OPTIMIZER  adamw (default), sgd, or a type of yours
#   RECOMPUTE  recompute_none (default), recompute_full, recompute_selective<...>, or a type of yours
#   OFFLOAD    no_offload (default), or a type of yours
#   ADAPTER    no_adapter (default), lora, or a type of yours
#   HEADERS    headers that declare types of yours; names with :: are taken as they are, others are xtrain's
#
# The source includes "recipe.hpp", which this function writes: struct recipe, with the policies chosen.

function(xtrain_add_trainer)
  cmake_parse_arguments(T "" "NAME;SOURCE;DEVICE;PRECISION;PARALLEL;OPTIMIZER;RECOMPUTE;OFFLOAD;ADAPTER" "HEADERS" ${ARGN})
  if(NOT T_NAME OR NOT T_SOURCE)
    message(FATAL_ERROR "xtrain_add_trainer: NAME and SOURCE must be given; given were: ${ARGN}")
  endif()
  if(T_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "xtrain_add_trainer(${T_NAME}): arguments are NAME, SOURCE, DEVICE, PRECISION, PARALLEL, OPTIMIZER, RECOMPUTE, OFFLOAD, ADAPTER and HEADERS; "
                        "given was also: ${T_UNPARSED_ARGUMENTS}")
  endif()
  foreach(component io text)
    if(NOT TARGET xtrain::${component})
      message(FATAL_ERROR "xtrain_add_trainer(${T_NAME}): the trainers need the component '${component}'; call find_package(xtrain COMPONENTS io text)")
    endif()
  endforeach()
  find_package(CLI11 QUIET)
  if(NOT TARGET CLI11::CLI11)
    message(FATAL_ERROR "xtrain_add_trainer(${T_NAME}): the trainers' command lines need CLI11 (Debian and Ubuntu: libcli11-dev)")
  endif()

  set(examples "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../examples")
  if(XTRAIN_EXAMPLES_DIR)
    set(examples "${XTRAIN_EXAMPLES_DIR}")
  endif()
  cmake_path(ABSOLUTE_PATH T_SOURCE BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" OUTPUT_VARIABLE source)
  if(NOT EXISTS "${source}")
    set(source "${examples}/${T_SOURCE}")
  endif()
  if(NOT EXISTS "${source}")
    message(FATAL_ERROR "xtrain_add_trainer(${T_NAME}): SOURCE must be a file of yours or an example; '${T_SOURCE}' is neither")
  endif()

  set(lines "")
  foreach(axis device precision parallel optimizer recompute offload adapter)
    string(TOUPPER ${axis} argument)
    if(T_${argument})
      set(type "${T_${argument}}")
      if(NOT type MATCHES "::")
        set(type "xtrain::${type}")
        string(REPLACE "<" "<xtrain::" type "${type}")
        string(REPLACE "," ", xtrain::" type "${type}")
      endif()
      string(APPEND lines "  using ${axis} = ${type};\n")
    endif()
  endforeach()
  set(includes "#include <xtrain/text.hpp>\n")
  foreach(header ${T_HEADERS})
    cmake_path(ABSOLUTE_PATH header BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
    string(APPEND includes "#include \"${header}\"\n")
  endforeach()
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/xtrain-recipes/${T_NAME}")
  file(CONFIGURE OUTPUT "${folder}/recipe.hpp" CONTENT "// The policies of the trainer '${T_NAME}', as xtrain_add_trainer was told.
#pragma once

${includes}
struct recipe : xtrain::defaults {
${lines}};
" @ONLY)

  add_executable(${T_NAME} "${source}")
  target_include_directories(${T_NAME} PRIVATE "${folder}")
  target_link_libraries(${T_NAME} PRIVATE xtrain::text CLI11::CLI11)
endfunction()
