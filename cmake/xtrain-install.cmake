# Installs headers, targets, the CMake package, and sources of xtrain_add_trainer and xtrain_add_front_ends.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package "${CMAKE_INSTALL_DATADIR}/cmake/xtrain")

foreach(target xtrain xtrain_io xtrain_text xtrain_mpi xtrain_openmp xtrain_parquet xtrain_recipes)
  install(TARGETS ${target} EXPORT xtrain-${target} FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  install(EXPORT xtrain-${target} NAMESPACE xtrain:: DESTINATION "${package}" FILE ${target}-targets.cmake)
endforeach()
install(TARGETS xtrain_native EXPORT xtrain-xtrain_native)
install(EXPORT xtrain-xtrain_native NAMESPACE xtrain:: DESTINATION "${package}" FILE xtrain_native-targets.cmake)

configure_package_config_file(cmake/xtrain-config.cmake.in "${PROJECT_BINARY_DIR}/xtrain-config.cmake" INSTALL_DESTINATION "${package}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/xtrain-config-version.cmake" COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/xtrain-config.cmake" "${PROJECT_BINARY_DIR}/xtrain-config-version.cmake" cmake/xtrain-dependencies.cmake
              cmake/xtrain-check-links.cmake
              cmake/xtrain-add-trainer.cmake cmake/xtrain-add-front-ends.cmake cmake/xtrain-example-programs.cmake cmake/xtrain-add-library.cmake
              cmake/library_core.cpp cmake/library_fp32.cpp cmake/library_fp32_lora.cpp cmake/library_bf16.cpp cmake/library_bf16_lora.cpp
              cmake/library_data.cpp cmake/library_io.cpp cmake/library_text.cpp cmake/library_recipes.cpp cmake/xtrain-cpu-kernels.cmake cmake/cpu_kernels.cpp
              cmake/xtrain-cuda-kernels.cmake cmake/xtrain-musa-kernels.cmake cmake/xtrain-cuda-toolkit.cmake cmake/cuda_kernels.cu cmake/cudnn_attention.cpp
              cmake/xtrain-cpu-levels.cmake cmake/cpu_level.cpp cmake/FindPCRE2.cmake cmake/FindUtf8proc.cmake cmake/FindArrowParquet.cmake
              DESTINATION "${package}")
install(FILES examples/pretrain.cpp examples/finetune.cpp examples/generate.cpp examples/evaluate.cpp examples/train_encoder.cpp examples/plan.cpp
              examples/command_line.hpp examples/flag_names.hpp examples/frozen_model.hpp examples/training_run.hpp examples/objective_flags.hpp
              examples/predicted_answers.hpp examples/program_start.hpp examples/gpu_rehearsal.hpp examples/npu_rehearsal.hpp examples/readable_adapter.hpp
              examples/ranks.hpp examples/restarts.hpp examples/train.cpp examples/described_data.hpp examples/described_files.hpp
              examples/described_settings.hpp examples/described_ppo.hpp examples/log_styles_hugging_face.hpp examples/log_styles_megatron.hpp
              examples/log_styles_torchtune.hpp
              examples/tune.cpp examples/hf_train.cpp examples/main_hf.cpp examples/megatron.cpp examples/front_end.hpp examples/python_program.hpp
              examples/convert.cpp examples/preprocess_data.cpp examples/describe.cpp examples/musa_probe.cpp
              DESTINATION "${package}/examples")
install(DIRECTORY include/xtrain/device/cuda include/xtrain/device/musa DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/xtrain/device"
        FILES_MATCHING PATTERN "*.cuh")  # for nvcc and mcc alone
install(DIRECTORY include/xtrain DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.md")  # the pages that messages name
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/xtrain")
if(PROJECT_IS_TOP_LEVEL)
  include(packaging/debian.cmake)
endif()
