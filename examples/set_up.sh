# Sourced by quickstart.sh and tests/run.sh: installs the Debian or Ubuntu packages that are missing.
#
#   set_up PACKAGE...

# Packages that are needed to build the programs of this project. Apache Arrow, for the component 'parquet', is not among them: Debian 12 and Ubuntu 24.04
# do not have it. It is used where the Python package pyarrow, or a folder ARROW_ROOT, is found.
build_packages="g++ cmake ninja-build libxtensor-dev libxsimd-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev libcli11-dev libyaml-cpp-dev"

set_up() {
  missing=""
  if command -v dpkg-query > /dev/null; then
    for package in "$@"; do
      case "$(dpkg-query -W -f '${Status}' "$package" 2> /dev/null || true)" in
        *"ok installed") ;;
        *) missing="$missing $package" ;;
      esac
    done
  fi
  if ! command -v apt-get > /dev/null; then
    echo "This is neither Debian nor Ubuntu, so nothing is installed for you. What is needed:"
    echo "  a C++20 compiler (g++ 12, clang++ 14 or newer), CMake 3.25 or newer, Ninja, xtensor 0.24 and xsimd 8.1 or newer,"
    echo "  nlohmann-json, PCRE2, utf8proc, yaml-cpp and CLI11; for the tests also doctest, MPI and both compilers."
    return 0
  fi
  if [ -z "$missing" ]; then
    return 0
  fi
  echo "Installing:$missing"
  as_root=""
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo > /dev/null; then
      echo "These packages must be installed, by root or with sudo:$missing" >&2
      return 1
    fi
    as_root=sudo
  fi
  # outdated package lists name files that no longer exist, so they are updated when something is missing
  $as_root apt-get update -qq
  # shellcheck disable=SC2086  # a list of words
  DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing > /dev/null
}
