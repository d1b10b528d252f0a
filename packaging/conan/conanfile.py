"""conan create packaging/conan: packages the checkout that this file is in. The libraries that xtrain needs are the system's."""
import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy, load
from conan.tools.layout import basic_layout
from conan.tools.system.package_manager import Apt


class Xtrain(ConanFile):
    name = "xtrain"
    license = "MIT"
    description = "Header-only C++20 library that trains large language models"
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"io": [True, False], "text": [True, False], "recipes": [True, False], "programs": [True, False], "mpi": [True, False]}
    default_options = {"io": True, "text": True, "recipes": False, "programs": False, "mpi": False}
    no_copy_source = True

    @property
    def _checkout(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        project = load(self, os.path.join(self._checkout, "CMakeLists.txt"))
        self.version = re.search(r"project\(xtrain VERSION ([0-9.]+)", project).group(1)

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*.hpp", "include/*.cuh", "include/*.md", "examples/*.cpp", "examples/*.hpp",
                        "packaging/*.cmake"):
            copy(self, pattern, self._checkout, self.export_sources_folder)

    def configure(self):
        if self.options.text or self.options.recipes:
            self.options.io = True

    def layout(self):
        basic_layout(self)

    def validate(self):
        check_min_cppstd(self, 20)

    def package_id(self):
        self.info.clear()  # headers: the same for every compiler, and for every choice of components

    def system_requirements(self):
        packages = ["libxtensor-dev", "libxsimd-dev"]
        packages += ["nlohmann-json3-dev"] if self.options.io else []
        packages += ["libpcre2-dev", "libutf8proc-dev"] if self.options.text else []
        packages += ["libyaml-cpp-dev"] if self.options.recipes else []
        packages += ["libcli11-dev"] if self.options.programs else []
        packages += ["libopenmpi-dev"] if self.options.mpi else []
        Apt(self).install(packages)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["XTRAIN_BUILD_EXAMPLES"] = False
        toolchain.cache_variables["XTRAIN_INSTALL"] = True
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        # programs use the package's own CMake files
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "xtrain")]
