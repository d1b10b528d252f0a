# An overlay port: it packages the checkout that it is in. A registry's port takes the source of a release in its place.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)
set(VCPKG_BUILD_TYPE release)  # headers alone

# Features say which libraries are installed with it. All headers are installed: find_package(xtrain COMPONENTS ...) looks for what they need.
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DXTRAIN_BUILD_EXAMPLES=OFF -DXTRAIN_BUILD_TESTS=OFF -DXTRAIN_INSTALL=ON)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/xtrain)

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/doc")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
