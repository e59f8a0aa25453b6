// An archive of a hostile sandbox: whatever it holds, nothing outside the target directory changes.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "cli/ssh/tar.hpp"

namespace fs = std::filesystem;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fs::path root = [] {
    std::string pattern = (fs::temp_directory_path() / "tar-fuzz-XXXXXX").string();
    return fs::path{::mkdtemp(pattern.data())};
  }();
  static const bool cleaned = std::atexit([] { fs::remove_all(root); }) == 0;
  (void)cleaned;
  fs::remove_all(root / "in");
  fs::create_directories(root / "in");
  std::ofstream{root / "victim"} << "safe";
  const int fd = ::memfd_create("archive", MFD_CLOEXEC);
  if (::write(fd, data, size) != static_cast<ssize_t>(size)) std::abort();
  ::lseek(fd, 0, SEEK_SET);
  (void)openshell::cli::extract_tree(fd, root / "in");
  ::lseek(fd, 0, SEEK_SET);
  (void)openshell::cli::extract_file(fd, root / "in" / "target");
  ::close(fd);
  std::ifstream victim{root / "victim"};
  const std::string text{std::istreambuf_iterator<char>{victim}, {}};
  const auto entries = std::distance(fs::directory_iterator{root}, fs::directory_iterator{});
  if (text != "safe" || entries != 2) std::abort();
  return 0;
}
