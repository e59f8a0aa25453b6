#include "cli/terminal.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "cli/gateway_client.hpp"

namespace openshell::cli {
namespace {

bool styled = false;

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

bool decide(ColorChoice choice) {
  if (choice != ColorChoice::automatic) return choice == ColorChoice::always;
  if (is_set("NO_COLOR")) return false;
  if (is_set("FORCE_COLOR")) return true;
  const char* term = std::getenv("TERM");
  return term != nullptr && *term != '\0' && std::string_view{term} != "dumb" && isatty(STDOUT_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
}

void write_line(FILE* out, std::string_view line) {
  std::fwrite(line.data(), 1, line.size(), out);
  std::fputc('\n', out);
}

}  // namespace

void choose_color(ColorChoice choice) { styled = decide(choice); }

std::string mark(std::string_view sign) {
  if (!styled) return std::string{sign};
  const char* color = sign == kDone ? "\033[32m" : sign == kWarning ? "\033[33m" : "\033[31m";
  return color + std::string{sign} + "\033[0m";
}

void print(std::string_view line) { write_line(stdout, line); }
void note(std::string_view line) { write_line(stderr, line); }
void print_error(const absl::Status& status) { write_line(stderr, "Error:   " + mark(kFailed) + " " + describe(status)); }

}  // namespace openshell::cli
