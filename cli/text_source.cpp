#include "cli/text_source.hpp"

#include <absl/strings/str_cat.h>

#include <filesystem>
#include <fstream>
#include <iostream>

namespace openshell::cli {
namespace {

absl::StatusOr<std::string> read_all(std::istream& from, const std::string& name, std::size_t limit, const std::string& what) {
  std::string text(limit + 1, '\0');  // one byte more than allowed is enough to know
  from.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(from.gcount()));
  if (text.size() > limit)
    return absl::InvalidArgumentError(absl::StrCat(name, ": a ", what, " has at most ", limit, " bytes, this one has more"));
  text.shrink_to_fit();
  return text;
}

}  // namespace

std::string source_name(const std::string& path) { return path == "-" ? "<stdin>" : path; }

absl::StatusOr<std::string> read_text_source(const std::string& path, std::size_t limit, const std::string& what) {
  if (path == "-") return read_all(std::cin, source_name(path), limit, what);
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return absl::InvalidArgumentError(absl::StrCat(path, " is a directory, not a ", what));
  std::ifstream file{path, std::ios::binary};
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", what, " ", path));
  return read_all(file, path, limit, what);
}

}  // namespace openshell::cli
