#include "programs/rego/files.hpp"

#include "policy/text.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace openshell::rego_program {
namespace {

using namespace openshell::policy::rego;
using openshell::policy::text::cat;

std::string message_of(const absl::Status& status) { return {status.message().data(), status.message().size()}; }

Error trouble(std::string message) { return {std::string(code::kInput), std::move(message), "", {}}; }

bool is_document(const std::filesystem::path& path) {
  const auto ending = path.extension();
  return ending == ".json" || ending == ".yaml" || ending == ".yml";
}

void load_file(const std::string& path, const std::vector<std::string>& place, Workspace& workspace, Errors& errors) {
  if (std::filesystem::path(path).extension() == ".rego") {
    const auto text = read_file(path);
    if (!text.ok()) {
      errors.push_back(trouble(message_of(text.status())));
      return;
    }
    if (auto error = workspace.add_module(path, *text)) errors.push_back(*std::move(error));
    return;
  }
  auto document = read_document(path);
  if (!document.ok()) {
    errors.push_back(trouble(message_of(document.status())));
    return;
  }
  Value placed = *std::move(document);
  for (auto part = place.rbegin(); part != place.rend(); ++part) placed = Value::object({{Value::string(*part), std::move(placed)}});
  if (const auto status = workspace.add_data(placed); !status.ok()) errors.push_back(trouble(cat(path, ": ", message_of(status))));
}

void load_folder(const std::string& root, Workspace& workspace, Errors& errors) {
  std::vector<std::filesystem::path> files;
  std::error_code problem;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root, problem)) {
    if (entry.is_regular_file() && (entry.path().extension() == ".rego" || is_document(entry.path()))) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    std::vector<std::string> place;
    for (const auto& part : std::filesystem::relative(file.parent_path(), root)) {
      if (part != ".") place.push_back(part.string());
    }
    load_file(file.string(), place, workspace, errors);
  }
}

}  // namespace

absl::StatusOr<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path)) return absl::NotFoundError(cat(path, ": cannot be read"));
  std::string text;
  char buffer[65536];
  while (file.read(buffer, sizeof buffer) || file.gcount() > 0) {
    text.append(buffer, static_cast<std::size_t>(file.gcount()));
    if (text.size() > kMaxFileBytes) return absl::ResourceExhaustedError(cat(path, ": larger than ", kMaxFileBytes, " bytes"));
  }
  return text;
}

absl::StatusOr<Value> read_document(const std::string& path) {
  const auto text = read_file(path);
  if (!text.ok()) return text.status();
  const auto ending = std::filesystem::path(path).extension();
  absl::StatusOr<Value> value;
  if (ending == ".yaml" || ending == ".yml") {
    const Builtin* yaml = find_builtin("yaml.unmarshal");
    if (yaml == nullptr) return absl::UnimplementedError(cat(path, ": no YAML in this build"));
    QueryContext context;
    const Value argument = Value::string(*text);
    value = yaml->function(context, {&argument, 1});
  } else {
    value = parse_json(*text);
  }
  if (!value.ok()) return absl::InvalidArgumentError(cat(path, ": ", message_of(value.status())));
  return value;
}

Errors load(const std::vector<std::string>& paths, Workspace& workspace) {
  Errors errors;
  for (const auto& path : paths) {
    if (std::filesystem::is_directory(path)) {
      load_folder(path, workspace, errors);
    } else {
      load_file(path, {}, workspace, errors);
    }
  }
  if (errors.empty()) errors = workspace.compile();
  return errors;
}

}  // namespace openshell::rego_program
