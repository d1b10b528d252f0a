# cpack -G DEB makes libxtrain-dev of what is installed. The components' libraries are recommended: apt installs them unless it is told not to.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME libxtrain-dev)
set(CPACK_PACKAGE_CONTACT "the authors of xtrain <xtrain@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "header-only C++20 library that trains large language models")
set(CPACK_PACKAGE_FILE_NAME "libxtrain-dev_${PROJECT_VERSION}_all")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PRE_BUILD_SCRIPTS "${CMAKE_CURRENT_LIST_DIR}/debian_copyright.cmake")
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libxtensor-dev (>= 0.24), libxsimd-dev (>= 8.1)")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS
    "cmake (>= 3.25), g++ (>= 4:12), nlohmann-json3-dev, libpcre2-dev, libutf8proc-dev, libyaml-cpp-dev, libcli11-dev")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libopenmpi-dev, libomp-dev")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "It pre-trains, fine-tunes, runs and evaluates models of Hugging Face folders.
Device, precision, parallel strategy, optimizer, objective and adapter are types,
which compose into a model and a trainer.")
include(CPack)
