// One request decided by the compiled policy and by the same rules as a Rego file, over one policy of many rules. Writes what it asked into
// FOLDER, for other programs to be asked the same. Usage: bench_rego FOLDER RULES SECONDS. Prints one JSON object.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include "policy/evaluator_data.hpp"
#include "policy/evaluator_input.hpp"
#include "policy/matcher.hpp"
#include "policy/parse.hpp"
#include "policy/rego/workspace.hpp"
#include "policy/rules_file.hpp"
#include "sandbox.pb.h"

namespace policy = openshell::policy;
namespace rego = openshell::policy::rego;
using Clock = std::chrono::steady_clock;

namespace {

constexpr auto kQuery = "data.openshell.sandbox.allow_request";

std::string many_rules(int count) {
  std::string out = "version: 1\nnetwork_policies:\n";
  for (int i = 0; i < count; ++i) {
    out += fmt::format(
        "  rule_{0:05}:\n    endpoints:\n      - host: host{0}.test\n        port: 443\n        protocol: rest\n        enforcement: "
        "enforce\n"
        "        rules: [{{allow: {{method: GET, path: \"/v1/items/*\"}}}}, {{allow: {{method: POST, path: \"/v1/build\"}}}}]\n"
        "    binaries: [/usr/bin/curl]\n",
        i);
  }
  return out;
}

void write(const std::string& path, std::string_view text) { std::ofstream{path} << text; }

/// Median of one call, in nanoseconds.
template <class Call>
double median(double seconds, Call call) {
  std::vector<double> times;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (times.empty() || Clock::now() < end) {
    const auto begin = Clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::nano>(Clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

int fail(const std::string& why) {
  fmt::print(stderr, "bench_rego: {}\n", why);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return fail("usage: bench_rego FOLDER RULES SECONDS");
  const std::string folder = argv[1];
  const int count = std::stoi(argv[2]);
  const double seconds = std::stod(argv[3]);
  const auto parsed = policy::load_policy(many_rules(count));
  if (!parsed.ok()) return fail(parsed.diagnostics.render());
  const auto matcher = policy::Matcher::compile(*parsed.policy);
  if (!matcher.ok()) return fail(std::string{matcher.status().message()});
  const auto host = fmt::format("host{}.test", count / 2);
  const policy::Destination destination{host, 443, {"/usr/bin/curl", {}, {}}};
  const policy::Request request{"GET", "/v1/items/7", {}};
  const auto data = policy::evaluator_data(**matcher), input = policy::evaluator_input(destination, &request);
  write(folder + "/data.json", data);
  write(folder + "/input.json", input);
  write(folder + "/rules.rego", policy::default_rules());
  write(folder + "/path.rego", policy::path_shim());

  bool compiled = false;
  constexpr int kBatch = 100;  // below the clock's own grain
  const double compiled_ns = median(seconds,
                                    [&] {
                                      for (int i = 0; i < kBatch; ++i) {
                                        const auto open = (*matcher)->connect(destination);
                                        compiled = open.allowed && open.request(request).verdict == policy::Verdict::allow;
                                      }
                                    }) /
                             kBatch;

  rego::Workspace workspace;
  if (auto error = workspace.add_module("path.rego", policy::path_shim())) return fail(rego::describe(*error));
  if (auto error = workspace.add_module("rules.rego", policy::default_rules())) return fail(rego::describe(*error));
  if (auto status = workspace.add_data(*rego::parse_json(data)); !status.ok()) return fail(std::string{status.message()});
  for (const auto& error : workspace.compile()) return fail(rego::describe(error));
  auto prepared = workspace.prepare(kQuery);
  if (!std::holds_alternative<rego::Query>(prepared)) return fail("the query does not compile");
  const auto& query = std::get<rego::Query>(prepared);
  const auto question = *rego::parse_json(input);
  bool allowed = false;
  const double rego_ns = median(seconds, [&] {
    const auto answers = workspace.ask(query, question);
    const auto* all = std::get_if<std::vector<rego::Answer>>(&answers);
    allowed = all != nullptr && !all->empty() && all->front().expressions.front().is_true();
  });
  fmt::print("{{\"rules\": {}, \"compiled\": {}, \"compiled_ns\": {:.1f}, \"rego\": {}, \"rego_ns\": {:.1f}}}\n", count, compiled,
             compiled_ns, allowed, rego_ns);
  return 0;
}
