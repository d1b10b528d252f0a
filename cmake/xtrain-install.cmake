# Installs headers, targets, the CMake package, and the example trainers that xtrain_add_trainer can build.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package "${CMAKE_INSTALL_DATADIR}/cmake/xtrain")

foreach(target xtrain xtrain_io xtrain_text xtrain_mpi xtrain_openmp)
  install(TARGETS ${target} EXPORT xtrain-${target} FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  install(EXPORT xtrain-${target} NAMESPACE xtrain:: DESTINATION "${package}" FILE ${target}-targets.cmake)
endforeach()
install(TARGETS xtrain_native EXPORT xtrain-xtrain_native)
install(EXPORT xtrain-xtrain_native NAMESPACE xtrain:: DESTINATION "${package}" FILE xtrain_native-targets.cmake)

configure_package_config_file(cmake/xtrain-config.cmake.in "${PROJECT_BINARY_DIR}/xtrain-config.cmake" INSTALL_DESTINATION "${package}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/xtrain-config-version.cmake" COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/xtrain-config.cmake" "${PROJECT_BINARY_DIR}/xtrain-config-version.cmake" cmake/xtrain-dependencies.cmake
              cmake/xtrain-add-trainer.cmake cmake/xtrain-add-library.cmake cmake/library_core.cpp cmake/library_fp32.cpp
              cmake/library_fp32_lora.cpp cmake/library_bf16.cpp cmake/library_bf16_lora.cpp cmake/library_io.cpp cmake/library_text.cpp
              cmake/xtrain-cpu-kernels.cmake cmake/cpu_kernels.cpp cmake/xtrain-cpu-levels.cmake cmake/cpu_level.cpp cmake/FindPCRE2.cmake cmake/FindUtf8proc.cmake DESTINATION "${package}")
install(FILES examples/pretrain.cpp examples/finetune.cpp examples/generate.cpp examples/train_encoder.cpp examples/plan.cpp examples/command_line.hpp examples/flag_names.hpp examples/training_run.hpp examples/ranks.hpp examples/restarts.hpp DESTINATION "${package}/examples")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/xtrain")
