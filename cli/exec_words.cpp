#include "cli/exec_words.hpp"

#include <algorithm>
#include <array>

namespace openshell::cli {
namespace {

// Options before the command that take the next word as their value.
constexpr std::array<std::string_view, 11> kValued{
    "-n", "--name", "--workdir", "--timeout", "--env", "-g", "--gateway", "--gateway-endpoint", "--workspace", "--color", "--sandbox"};

bool takes_next(std::string_view word) { return std::find(kValued.begin(), kValued.end(), word) != kValued.end(); }

bool names_sandbox(std::string_view word) {
  return word == "--name" || word.starts_with("--name=") || (word.starts_with("-n") && !word.starts_with("--"));
}

}  // namespace

std::optional<std::size_t> older_exec_command(std::span<const char* const> words) {
  enum class At { root, sandbox, exec } at = At::root;
  bool named = false;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string_view word{words[i]};
    if (word == "--") return std::nullopt;
    if (word.starts_with('-') && word != "-") {
      named = named || (at == At::exec && names_sandbox(word));
      if (takes_next(word)) ++i;
    } else if (at == At::root && word == "sandbox") {
      at = At::sandbox;
    } else if (at == At::sandbox && word == "exec") {
      at = At::exec;
    } else {
      return at == At::exec && named ? std::optional{i} : std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace openshell::cli
