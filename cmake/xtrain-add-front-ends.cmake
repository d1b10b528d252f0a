# xtrain_add_front_ends: the programs that take configs and command lines of other systems.
#
#   find_package(xtrain REQUIRED COMPONENTS text recipes native OPTIONAL_COMPONENTS mpi parquet)
#   xtrain_add_front_ends(LIBRARIES xtrain::native)
#
#   NAMES      which programs, each a target of that name; all by default:
#                tune             torchtune's configs
#                megatron         command lines of Megatron-LM and AscendSpeed; with links pretrain_gpt, pretrain_llama, ... beside it
#                hf_train         flags of Hugging Face's Trainer, DeepSpeed's JSON
#                main_hf          flags of the MUSA demo
#                preprocess_data  data before training; reads Parquet and Arrow files if the component 'parquet' is there
#                convert          weights between formats
#   LIBRARIES  targets that the programs link, and with which trainers are compiled: xtrain::native, xtrain::library, xtrain::cpu_kernels, or interface
#              targets of yours that have options and definitions
#
#   DEVICES    npu: needs nothing, and is always there: CANN is found when a trainer runs. cuda: the trainers that they compile may be for an NVIDIA GPU too.
#              Needs nvcc: they are built with xtrain::cuda_kernels, which xtrain_add_cuda_kernels makes (called here if it was not before; 25 minutes of a
#              processor, once). musa: the same for a Moore Threads GPU, with mcc and xtrain_add_musa_kernels. With the variable XTRAIN_GPU_REHEARSAL both
#              need neither compiler nor GPU
#
# The first four start trainers: one beside them, named train-KEY, or one that they compile when a run asks for it, as the file trainers.txt beside them says,
# which this function writes: with the compiler and flags of this build. Without xtrain::library a trainer is compiled with -O3 unless these flags say
# otherwise, because it contains the kernels. With the component 'mpi' its ranks may be processes. These four need the component 'recipes', all programs
# need 'text'. 'tune run generate' and 'eleuther_eval', and Megatron's programs for inference and evaluation, call programs beside the front ends:
# xtrain_add_trainer(NAME generate SOURCE generate.cpp), generate_bf16, evaluate.

include("${CMAKE_CURRENT_LIST_DIR}/xtrain-example-programs.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/xtrain-cuda-toolkit.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/xtrain-musa-kernels.cmake")

set_property(GLOBAL PROPERTY XTRAIN_VERSION "${xtrain_VERSION}")

function(xtrain_add_front_ends)
  set(start_trainers tune megatron hf_train main_hf)
  set(all ${start_trainers} preprocess_data convert)
  cmake_parse_arguments(T "" "" "NAMES;LIBRARIES;DEVICES" ${ARGN})
  if(T_UNPARSED_ARGUMENTS)
    list(JOIN T_UNPARSED_ARGUMENTS " " unknown)
    message(FATAL_ERROR "xtrain_add_front_ends: arguments are NAMES, LIBRARIES and DEVICES; given was also: ${unknown}")
  endif()
  if(T_KEYWORDS_MISSING_VALUES)
    list(JOIN T_KEYWORDS_MISSING_VALUES " " empty)
    message(FATAL_ERROR "xtrain_add_front_ends: every argument must have a value; none was given to: ${empty}")
  endif()
  if(NOT T_NAMES)
    set(T_NAMES ${all})
  endif()
  foreach(name ${T_NAMES})
    if(NOT name IN_LIST all)
      list(JOIN all ", " there)
      message(FATAL_ERROR "xtrain_add_front_ends: NAMES must be among ${there}; given was also: ${name}")
    endif()
  endforeach()
  foreach(device ${T_DEVICES})
    if(NOT device MATCHES "^(cpu|cuda|musa|npu)$")
      message(FATAL_ERROR "xtrain_add_front_ends: DEVICES must be among cpu, cuda, musa, npu; given was also: ${device}")
    endif()
  endforeach()
  set(starting ${T_NAMES})
  list(REMOVE_ITEM starting preprocess_data convert)

  _xtrain_must_have(text xtrain_add_front_ends "the programs need")
  if(starting)
    list(JOIN starting ", " who)
    _xtrain_must_have(recipes xtrain_add_front_ends "what starts trainers (${who}) needs")
  endif()
  _xtrain_must_have_cli11(xtrain_add_front_ends "the programs'")
  foreach(library ${T_LIBRARIES})
    if(NOT TARGET ${library})
      message(FATAL_ERROR "xtrain_add_front_ends: LIBRARIES must be targets; there is no '${library}' (xtrain::native is a component of find_package, "
                          "xtrain_add_library makes xtrain::library)")
    endif()
    get_target_property(target ${library} ALIASED_TARGET)
    if(NOT target)
      set(target ${library})
    endif()
    get_target_property(type ${target} TYPE)
    if(NOT type STREQUAL "INTERFACE_LIBRARY" AND NOT target STREQUAL "xtrain_library" AND NOT target STREQUAL "xtrain_cpu_kernels")
      message(FATAL_ERROR "xtrain_add_front_ends: LIBRARIES must be xtrain::library, xtrain::cpu_kernels or interface targets, since trainers that are "
                          "compiled on demand link no others; given was: ${library}")
    endif()
  endforeach()
  _xtrain_example(folder tune.cpp)
  cmake_path(GET folder PARENT_PATH folder)

  foreach(name ${T_NAMES})
    add_executable(${name} "${folder}/${name}.cpp")
    target_link_libraries(${name} PRIVATE xtrain::text CLI11::CLI11 ${T_LIBRARIES})
  endforeach()
  if(preprocess_data IN_LIST T_NAMES)
    _xtrain_has(parquet parquet)
    if(parquet)
      target_link_libraries(preprocess_data PRIVATE xtrain::parquet)
      target_compile_definitions(preprocess_data PRIVATE XTRAIN_EXAMPLE_ARROW)
    endif()
  endif()
  if(NOT starting)
    return()
  endif()

  foreach(name ${starting})
    target_link_libraries(${name} PRIVATE xtrain::recipes)
  endforeach()
  if(megatron IN_LIST starting)  # one program under the names of AscendSpeed's and Megatron-LM's scripts
    foreach(script gpt llama bloom baichuan internlm aquila)
      add_custom_command(TARGET megatron POST_BUILD VERBATIM
                         COMMAND "${CMAKE_COMMAND}" -E create_symlink megatron "$<TARGET_FILE_DIR:megatron>/pretrain_${script}")
    endforeach()
  endif()

  list(GET starting 0 like)  # a trainer is compiled as this program
  set(definitions "$<TARGET_PROPERTY:${like},COMPILE_DEFINITIONS>")
  set(yaml "$<IF:$<TARGET_EXISTS:yaml-cpp::yaml-cpp>,yaml-cpp::yaml-cpp,yaml-cpp>")
  set(libraries "$<TARGET_FILE:${yaml}>;$<TARGET_FILE:PCRE2::8BIT>;$<TARGET_FILE:Utf8proc::utf8proc>;-pthread")
  if(TARGET xtrain_cpu_kernels)
    string(PREPEND libraries "$<$<IN_LIST:XTRAIN_CPU_KERNELS,${definitions}>:$<TARGET_FILE:xtrain_cpu_kernels>>;")
  endif()
  if(TARGET xtrain_library)
    string(PREPEND libraries "$<$<IN_LIST:XTRAIN_LIBRARY,${definitions}>:$<TARGET_FILE:xtrain_library>>;")
  endif()
  separate_arguments(options UNIX_COMMAND "${CMAKE_CXX_FLAGS}")
  list(PREPEND options "$<$<NOT:$<IN_LIST:XTRAIN_LIBRARY,${definitions}>>:-O3>")
  set(configurations ${CMAKE_BUILD_TYPE} ${CMAKE_CONFIGURATION_TYPES})
  foreach(configuration ${configurations})
    string(TOUPPER "${configuration}" upper)
    separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS_${upper}}")
    list(APPEND options "$<$<CONFIG:${configuration}>:${flags}>")
  endforeach()
  list(APPEND options "$<TARGET_PROPERTY:${like},COMPILE_OPTIONS>")
  set(mpi_lines "")
  _xtrain_has(mpi mpi)
  if(mpi)
    set(mpi_lines "mpi_includes=$<TARGET_PROPERTY:MPI::MPI_CXX,INTERFACE_INCLUDE_DIRECTORIES>
mpi_libraries=$<TARGET_PROPERTY:MPI::MPI_CXX,INTERFACE_LINK_LIBRARIES>
")
  endif()
  set(cuda_lines "")
  if(cuda IN_LIST T_DEVICES AND XTRAIN_GPU_REHEARSAL)
    set(cuda_lines "cuda=rehearsal\ncuda_definitions=XTRAIN_GPU_REHEARSAL\n")
  elseif(cuda IN_LIST T_DEVICES)
    _xtrain_find_cuda(missing)
    if(missing)
      message(FATAL_ERROR "xtrain_add_front_ends: DEVICES cuda ${missing}")
    endif()
    xtrain_add_cuda_kernels()
    foreach(name ${starting})
      add_dependencies(${name} xtrain_cuda_kernels)
    endforeach()
    set(cudnn "")
    if(TARGET xtrain_cudnn)
      set(cudnn "-Wl,--undefined=xtrain_cudnn_library;$<TARGET_FILE:xtrain_cudnn>;")
    endif()
    set(cuda_lines "cuda=$<TARGET_PROPERTY:xtrain_cuda_kernels,XTRAIN_COMPILED_BY>
cuda_definitions=XTRAIN_CUDA_KERNELS
cuda_libraries=$<TARGET_FILE:xtrain_cuda_kernels>;${cudnn}$<TARGET_FILE:CUDA::cudart_static>;-lrt;-ldl
")
  endif()
  set(musa_lines "")
  if(musa IN_LIST T_DEVICES AND XTRAIN_GPU_REHEARSAL)
    set(musa_lines "musa=rehearsal\nmusa_definitions=XTRAIN_GPU_REHEARSAL;XTRAIN_MUSA_REHEARSAL\n")
  elseif(musa IN_LIST T_DEVICES)
    _xtrain_find_musa(missing)
    if(missing)
      message(FATAL_ERROR "xtrain_add_front_ends: DEVICES musa ${missing}")
    endif()
    xtrain_add_musa_kernels()
    foreach(name ${starting})
      add_dependencies(${name} xtrain_musa_kernels)
    endforeach()
    set(musa_lines "musa=$<TARGET_PROPERTY:xtrain_musa_kernels,XTRAIN_COMPILED_BY>
musa_definitions=XTRAIN_MUSA_KERNELS
musa_libraries=$<TARGET_FILE:xtrain_musa_kernels>;${XTRAIN_MUSART_LIBRARY};-ldl
")
  endif()
  set(npu_lines "")
  if(XTRAIN_NPU_REHEARSAL)
    set(npu_lines "npu_definitions=XTRAIN_NPU_REHEARSAL\n")
  endif()
  get_property(version GLOBAL PROPERTY XTRAIN_VERSION)
  file(GENERATE OUTPUT "$<TARGET_FILE_DIR:${like}>/trainers.txt" CONTENT
"compiler=${CMAKE_CXX_COMPILER}
source=${folder}/train.cpp
version=${version}
options=${options}
definitions=${definitions}
includes=$<REMOVE_DUPLICATES:${folder};$<TARGET_PROPERTY:${like},INCLUDE_DIRECTORIES>>
libraries=${libraries}
${mpi_lines}${cuda_lines}${musa_lines}${npu_lines}" TARGET ${like})
endfunction()
