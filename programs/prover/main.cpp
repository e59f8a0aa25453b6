// openshell-prover check: does a policy file stay within a boundary? Local files only; the answer stands on stdout and in the exit code.
#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "policy/boundary/report.hpp"
#include "policy/parse.hpp"
#include "policy/validate.hpp"
#include "sandbox.pb.h"

namespace {

namespace policy = openshell::policy;
namespace boundary = openshell::policy::boundary;
using boundary::Answer;
using boundary::Reason;

std::atomic<bool> cancelled{false};
static_assert(std::atomic<bool>::is_always_lock_free);

// Bytes that are read of a file: one more than the parser takes, so that it is the parser who refuses.
constexpr std::size_t kMaxFileBytes = policy::ParseLimits{}.bytes + 1;

/// Syntax only.
struct File {
  policy::ParseResult parsed;
  std::string fault;  // empty: it was read
};

File read(const std::string& path) {
  File out;
  std::ifstream in{path, std::ios::binary};
  std::string text;
  if (in.is_open()) {
    text.resize(kMaxFileBytes);
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(in.gcount()));
  }
  if (!in.is_open() || in.bad() || (text.empty() && !in.eof())) {
    out.fault = path + ": the file can not be read";
    return out;
  }
  out.parsed = policy::parse_policy(text, path);
  if (!out.parsed.ok()) out.fault = out.parsed.diagnostics.render();
  return out;
}

/// What the strict loader says about a policy that could be read; empty: nothing.
std::string faults_of(const File& file) {
  auto found = policy::validate(*file.parsed.policy);
  found.append(policy::check_reserved_keys(*file.parsed.policy));
  return found.render();
}

std::string flat(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) text.replace(at, 1, "; ");
  return text;
}

Answer run(const boundary::CheckCommand& command) {
  const auto end = std::chrono::steady_clock::now() + command.timeout;
  const boundary::Limits limits{[end] {
    if (cancelled.load(std::memory_order_relaxed)) return Reason::cancelled;
    return std::chrono::steady_clock::now() >= end ? Reason::solver_timeout : Reason::none;
  }};
  const File candidate = read(command.candidate), maximum = read(command.boundary);
  for (const File* file : {&maximum, &candidate}) {
    if (!file->fault.empty()) return boundary::unresolved(Reason::invalid_input, flat(file->fault));
  }
  if (auto answer = boundary::check_size(*candidate.parsed.policy, *maximum.parsed.policy)) return *std::move(answer);
  for (const File* file : {&maximum, &candidate}) {
    if (auto faults = faults_of(*file); !faults.empty()) {
      return boundary::unresolved(Reason::invalid_input, flat((file == &candidate ? command.candidate : command.boundary) + ": " + faults));
    }
  }
  return boundary::check(*candidate.parsed.policy, *maximum.parsed.policy, limits);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, [](int) { cancelled.store(true, std::memory_order_relaxed); });
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  if (words.size() == 1 && words[0] == "--version") {
    std::cout << "openshell-prover " << OPENSHELL_VERSION << "\n";
    return 0;
  }
  boundary::CheckCommand command;
  const auto status = boundary::parse_command(words, command);
  if (command.help) {
    std::cout
        << "Does a policy allow anything that a boundary policy does not?\n\n  " << boundary::usage()
        << "\n\nExit: 0 within the boundary, 1 beyond it (an example is shown), 2 a faulty file or usage, 3 no answer, 130 cancelled.\n";
    return 0;
  }
  const Answer answer = status.ok() ? run(command) : boundary::unresolved(Reason::invalid_input, std::string{status.message()});
  std::cout << boundary::report(command, answer, OPENSHELL_VERSION) << std::flush;
  return boundary::exit_code(answer);
}
