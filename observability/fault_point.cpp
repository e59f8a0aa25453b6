#include "observability/fault_point.hpp"

#ifdef OPENSHELL_FAULT_POINTS
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "observability/fault_plan.hpp"
#include "observability/text.hpp"

namespace openshell::fault {
namespace {

constexpr int kUsage = 2;
constexpr int kKilled = 137;  // what a shell says of kill -9

std::unique_ptr<Plan> read_plan() {
  const char* text = std::getenv("OPENSHELL_FAULT");
  auto plan = Plan::parse(text == nullptr ? "" : text);
  if (!plan.ok()) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(plan.status().message().size()), plan.status().message().data());
    ::_exit(kUsage);
  }
  return *std::move(plan);
}

Plan& plan() {
  static Plan& kept = *read_plan().release();  // threads pass points until the very end
  return kept;
}

}  // namespace

bool armed() {
  static const bool some = !plan().empty();
  return some;
}

bool point(std::string_view who, std::string_view what, std::string_view when) {
  if (!armed()) return false;
  const auto name = cat(who, ".", what, ".", when);
  switch (plan().pass(name)) {
    case Effect::kNone:
      return false;
    case Effect::kFail:
      return true;
    case Effect::kHang:
      std::fprintf(stderr, "fault point %s reached\n", name.c_str());
      while (true) ::pause();
    case Effect::kKill:
      ::kill(::getpid(), SIGKILL);
      ::_exit(kKilled);  // PID 1 of a namespace can not be killed from inside; its end takes the others along just as well
  }
  return false;
}

std::optional<std::string> plan_for_child(const char* variable, const std::string& sandbox) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return std::nullopt;
  if (*value != '@') return value;
  const std::string path = cat(value + 1, "/", sandbox);
  std::ifstream file{path};
  if (!file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  if (::unlink(path.c_str()) != 0) return std::nullopt;  // another start was faster
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace openshell::fault
#endif
