# xtrain_add_trainer: a program from one of the example trainers, or from a source like them, with chosen policies.
#
#   xtrain_add_trainer(NAME my_finetune SOURCE finetune.cpp PRECISION bf16_mixed)
#
#   NAME       of the target and the executable
#   SOURCE     a source file of yours, or the name of an example: pretrain.cpp, finetune.cpp, generate.cpp, evaluate.cpp, train_encoder.cpp, plan.cpp,
#              describe.cpp, or train.cpp, which needs the component 'recipes'
#   DEVICE     cpu (default), cuda, musa, npu, or a type of yours. npu (Ascend) needs nothing to be compiled: CANN is found when the trainer runs; with the
#              variable XTRAIN_NPU_REHEARSAL it runs without a card, under an AscendCL that checks every call. cuda needs nvcc: the trainer links
#              xtrain::cuda_kernels, which xtrain_add_cuda_kernels makes (called here if it was not before; 25 minutes of a processor, once); musa needs mcc
#              and xtrain_add_musa_kernels in the same way. With the variable XTRAIN_GPU_REHEARSAL they need neither compiler nor GPU: the kernels run on the
#              host, slowly, under a runtime that checks every call
#   PRECISION  fp32 (default), bf16_mixed, bf16_gradients, bf16_pure, fp16_mixed, or a type of yours
#   PARALLEL   single (default), data_parallel, zero<1>, zero<2>, zero<3>, tensor_parallel, sequence_parallel, parallel<zero<2>, tensor_parallel>, or a type of
#              yours; all but the first have ranks: --ranks N makes them threads of one process
#   MPI        ranks may also be processes that mpirun or srun starts: needs the component 'mpi'
#   OPTIMIZER  adamw (default), adamw_8bit, lion, sgd, muon, adafactor, or a type of yours
#   OBJECTIVE  next_token (default), dpo, kto, orpo, simpo, distillation, or a type of yours; for finetune.cpp, which gets the flags of its settings
#   RECOMPUTE  recompute_none (default), recompute_full, recompute_selective<...>, or a type of yours
#   OFFLOAD    no_offload (default), offload_to_file<memory_role::optimizer> (or other roles), or a type of yours
#   ADAPTER    no_adapter (default), lora, or a type of yours
#   FAMILIES   all (default), or families by name: gpt2 llama mistral mixtral qwen2 qwen3 gemma gemma2 phi3 bloom baichuan internlm internlm2 aquila chatglm
#              chatglm1. Several families are one model type whose layers are chosen at run time; a program of one family has that family's layers only, and
#              compiles faster
#   HEADERS    headers that declare types of yours; names with :: are taken as they are, others are xtrain's
#
# The source includes "recipe.hpp", which this function writes: struct recipe, with the policies chosen.

include("${CMAKE_CURRENT_LIST_DIR}/xtrain-example-programs.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/xtrain-cuda-toolkit.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/xtrain-musa-kernels.cmake")

function(xtrain_add_trainer)
  set(axes DEVICE PRECISION PARALLEL OPTIMIZER OBJECTIVE RECOMPUTE OFFLOAD ADAPTER)
  cmake_parse_arguments(T "MPI" "NAME;SOURCE;${axes}" "HEADERS;FAMILIES" ${ARGN})
  list(JOIN ARGN " " given)
  if(NOT T_NAME OR NOT T_SOURCE)
    message(FATAL_ERROR "xtrain_add_trainer: NAME and SOURCE must be given; given were: ${given}")
  endif()
  if(T_UNPARSED_ARGUMENTS)
    list(JOIN T_UNPARSED_ARGUMENTS " " unknown)
    message(FATAL_ERROR "xtrain_add_trainer(${T_NAME}): arguments are NAME, SOURCE, DEVICE, PRECISION, PARALLEL, OPTIMIZER, OBJECTIVE, RECOMPUTE, OFFLOAD, "
                        "ADAPTER, FAMILIES, HEADERS and MPI; given was also: ${unknown}")
  endif()
  if(T_KEYWORDS_MISSING_VALUES)
    list(JOIN T_KEYWORDS_MISSING_VALUES " " empty)
    message(FATAL_ERROR "xtrain_add_trainer(${T_NAME}): every argument must have a value; none was given to: ${empty}")
  endif()
  _xtrain_must_have(text "xtrain_add_trainer(${T_NAME})" "the trainers need")
  _xtrain_must_have_cli11("xtrain_add_trainer(${T_NAME})" "the trainers'")

  cmake_path(ABSOLUTE_PATH T_SOURCE BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" OUTPUT_VARIABLE source)
  if(NOT EXISTS "${source}")
    _xtrain_example(source "${T_SOURCE}")
  endif()
  if(NOT EXISTS "${source}")
    message(FATAL_ERROR "xtrain_add_trainer(${T_NAME}): SOURCE must be a file of yours or an example; '${T_SOURCE}' is neither")
  endif()

  set(lines "")
  foreach(axis ${axes})
    if(T_${axis})
      set(type "${T_${axis}}")
      if(NOT type MATCHES "^[^<]*::")
        string(REGEX REPLACE "([<,] *)([A-Za-z_])" "\\1xtrain::\\2" type "xtrain::${type}")
      endif()
      string(TOLOWER ${axis} name)
      string(APPEND lines "  using ${name} = ${type};\n")
    endif()
  endforeach()
  set(includes "#include <xtrain/text.hpp>\n")
  if(T_PARALLEL)
    string(APPEND includes "#include <xtrain/parallel.hpp>\n")
  endif()
  if(T_DEVICE STREQUAL "cuda")
    string(APPEND includes "#include <xtrain/comm/nccl/nccl.hpp>\n#include <xtrain/device/cuda/cuda.hpp>\n")
    if(NOT XTRAIN_GPU_REHEARSAL)
      _xtrain_find_cuda(missing)
      if(missing)
        message(FATAL_ERROR "xtrain_add_trainer(${T_NAME}): DEVICE cuda ${missing}")
      endif()
      xtrain_add_cuda_kernels()
    endif()
  endif()
  if(T_DEVICE STREQUAL "npu")
    string(APPEND includes "#include <xtrain/comm/hccl/hccl.hpp>\n#include <xtrain/device/npu/npu.hpp>\n")
  endif()
  if(T_DEVICE STREQUAL "musa")
    string(APPEND includes "#include <xtrain/comm/mccl/mccl.hpp>\n#include <xtrain/device/musa/musa.hpp>\n")
    if(NOT XTRAIN_GPU_REHEARSAL)
      _xtrain_find_musa(missing)
      if(missing)
        message(FATAL_ERROR "xtrain_add_trainer(${T_NAME}): DEVICE musa ${missing}")
      endif()
      xtrain_add_musa_kernels()
    endif()
  endif()
  set(processes void)
  if(T_MPI)
    _xtrain_must_have(mpi "xtrain_add_trainer(${T_NAME})" "MPI needs")
    string(APPEND includes "#include <xtrain/mpi.hpp>\n")
    set(processes xtrain::mpi_session)
  endif()
  foreach(header ${T_HEADERS})
    cmake_path(ABSOLUTE_PATH header BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
    if(NOT EXISTS "${header}")
      message(FATAL_ERROR "xtrain_add_trainer(${T_NAME}): HEADERS must be files of yours; there is no '${header}'")
    endif()
    string(APPEND includes "#include \"${header}\"\n")
  endforeach()
  if(NOT T_FAMILIES)
    set(T_FAMILIES all)
  endif()
  if(T_FAMILIES STREQUAL "all")
    set(families "xtrain::all_families")
    set(model "xtrain::any_decoder_of<Recipe, families>")
    string(APPEND includes "#include <xtrain/models/families.hpp>\n")
  else()
    foreach(family ${T_FAMILIES})
      set(header "${family}")
      if(family STREQUAL "internlm2")
        set(header internlm)
      endif()
      # of a checkout, an installed package, and one that vcpkg has moved
      foreach(room "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../include" "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../../../include"
                   "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../../include")
        if(EXISTS "${room}/xtrain/models/${header}.hpp")
          set(found TRUE)
        endif()
      endforeach()
      if(NOT found)
        message(FATAL_ERROR "xtrain_add_trainer(${T_NAME}): FAMILIES must be 'all' or names of families; there is no '${family}'")
      endif()
      unset(found)
      string(APPEND includes "#include <xtrain/models/${header}.hpp>\n")
    endforeach()
    list(TRANSFORM T_FAMILIES PREPEND "xtrain::")
    list(TRANSFORM T_FAMILIES APPEND "_family")
    list(JOIN T_FAMILIES ", " families)
    set(families "xtrain::family_list<${families}>")
    list(LENGTH T_FAMILIES count)
    if(count EQUAL 1)
      set(model "xtrain::decoder<Recipe, ${T_FAMILIES}>")
    else()
      string(APPEND includes "#include <xtrain/models/any_decoder.hpp>\n")
      set(model "xtrain::any_decoder_of<Recipe, families>")
    endif()
  endif()
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/xtrain-recipes/${T_NAME}")
  file(GENERATE OUTPUT "${folder}/recipe.hpp" CONTENT "// The policies of the trainer '${T_NAME}', as xtrain_add_trainer was told.
#pragma once

${includes}
struct recipe : xtrain::defaults {
${lines}};

/// The families that it can load.
using families = ${families};
template <class Recipe>
using model_of = ${model};

/// What makes processes that a launcher has started ranks of one run; void: nothing does.
using processes = ${processes};
")

  add_executable(${T_NAME} "${source}")
  target_include_directories(${T_NAME} PRIVATE "${folder}")
  target_link_libraries(${T_NAME} PRIVATE xtrain::text CLI11::CLI11)
  if(T_MPI)
    target_link_libraries(${T_NAME} PRIVATE xtrain::mpi)
  endif()
  if(T_DEVICE STREQUAL "cuda")
    if(XTRAIN_GPU_REHEARSAL)
      target_compile_definitions(${T_NAME} PRIVATE XTRAIN_GPU_REHEARSAL)
    else()
      target_link_libraries(${T_NAME} PRIVATE xtrain::cuda_kernels)
    endif()
  endif()
  if(T_DEVICE STREQUAL "npu")
    target_link_libraries(${T_NAME} PRIVATE ${CMAKE_DL_LIBS})
    if(XTRAIN_NPU_REHEARSAL)
      target_compile_definitions(${T_NAME} PRIVATE XTRAIN_NPU_REHEARSAL)
    endif()
  endif()
  if(T_DEVICE STREQUAL "musa")
    if(XTRAIN_GPU_REHEARSAL)
      target_compile_definitions(${T_NAME} PRIVATE XTRAIN_GPU_REHEARSAL XTRAIN_MUSA_REHEARSAL)
    else()
      target_link_libraries(${T_NAME} PRIVATE xtrain::musa_kernels)
    endif()
  endif()
  _xtrain_has(recipes recipes)  # train.cpp reads run descriptions
  if(recipes)
    target_link_libraries(${T_NAME} PRIVATE xtrain::recipes)
  endif()
endfunction()
