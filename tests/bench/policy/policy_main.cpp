// Figures of the compiled policy, without anything round it: how long a policy takes to build and a decision to make, by the number of its
// rules. Prints one JSON object a shape and size on a line of its own. Usage: bench_policy [--quick]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/hash.hpp"
#include "policy/matcher.hpp"
#include "policy/normalize.hpp"
#include "policy/validate.hpp"
#include "sandbox.pb.h"

namespace policy = openshell::policy;
namespace pb = openshell::sandbox::v1;
using Clock = std::chrono::steady_clock;

namespace {

volatile std::size_t sink = 0;  // what was measured is used

// How the rules of a policy of one size lie: each on a host of its own, all on one endpoint, all on patterns, all for other programs.
struct Shape {
  std::string_view name;
  std::function<pb::SandboxPolicy(int rules)> make;
  std::string (*host)(int rules);
  std::string (*path)(int rules);
};

pb::NetworkEndpoint& rest_endpoint(pb::NetworkPolicyRule& rule, const std::string& host) {
  auto& endpoint = *rule.add_endpoints();
  endpoint.set_host(host);
  endpoint.add_ports(443);
  endpoint.set_protocol("rest");
  endpoint.set_enforcement(pb::NETWORK_ENFORCEMENT_MODE_ENFORCE);
  return endpoint;
}

void allow(pb::NetworkEndpoint& endpoint, const std::string& method, const std::string& path) {
  auto& rule = *endpoint.add_rules()->mutable_allow();
  rule.set_method(method);
  rule.set_path(path);
}

pb::NetworkPolicyRule& rule_of(pb::SandboxPolicy& policy, int number, const std::string& binary = "/usr/bin/curl") {
  auto& rule = (*policy.mutable_network_policies())[fmt::format("rule_{:05}", number)];
  rule.add_binaries()->set_path(binary);
  return rule;
}

pb::SandboxPolicy own_hosts(int rules) {
  pb::SandboxPolicy out;
  for (int i = 0; i < rules; ++i) {
    auto& endpoint = rest_endpoint(rule_of(out, i), fmt::format("api{}.shop{}.test", i, i % 7));
    allow(endpoint, "GET", "/v1/*/items/**");
    allow(endpoint, "POST", "/v1/orders");
  }
  return out;
}

pb::SandboxPolicy patterns(int rules) {
  pb::SandboxPolicy out;
  for (int i = 0; i < rules; ++i) allow(rest_endpoint(rule_of(out, i), fmt::format("*.tenant{}.shop.test", i)), "GET", "/v1/**");
  return out;
}

pb::SandboxPolicy one_endpoint(int rules) {
  pb::SandboxPolicy out;
  auto& endpoint = rest_endpoint(rule_of(out, 0), "api.shop.test");
  for (int i = 0; i < rules; ++i) allow(endpoint, i % 2 == 0 ? "GET" : "POST", fmt::format("/v1/resource{}/*/parts/**", i));
  return out;
}

pb::SandboxPolicy own_ports(int rules) {
  pb::SandboxPolicy out;
  for (int i = 0; i < rules; ++i) {
    auto& endpoint = rest_endpoint(rule_of(out, i), "api.shop.test");
    endpoint.set_ports(0, static_cast<std::uint32_t>(i == rules / 2 ? 443 : 10'000 + i));
    allow(endpoint, "GET", "/v1/**");
  }
  return out;
}

pb::SandboxPolicy own_binaries(int rules) {
  pb::SandboxPolicy out;
  for (int i = 0; i < rules; ++i) {
    allow(rest_endpoint(rule_of(out, i, i == rules / 2 ? "/usr/bin/curl" : fmt::format("/opt/tools/t{}", i)), "api.shop.test"), "GET",
          "/v1/**");
  }
  return out;
}

pb::SandboxPolicy own_paths(int rules) {
  pb::SandboxPolicy out;
  for (int i = 0; i < rules; ++i) allow(rest_endpoint(rule_of(out, i), "api.shop.test"), "GET", fmt::format("/v1/resource{}/**", i));
  return out;
}

pb::SandboxPolicy program_patterns(int rules) {
  pb::SandboxPolicy out;
  for (int i = 0; i < rules; ++i) {
    allow(rest_endpoint(rule_of(out, i, i == rules / 2 ? "/usr/bin/*" : fmt::format("/opt/tools{}/**", i)), "api.shop.test"), "GET",
          "/v1/**");
  }
  return out;
}

std::vector<Shape> shapes() {
  const auto shop = [](int) { return std::string{"api.shop.test"}; };
  const auto items = [](int) { return std::string{"/v1/abc/items/7"}; };
  return {
      {"own hosts", own_hosts, [](int n) { return fmt::format("api{}.shop{}.test", n / 2, n / 2 % 7); }, items},
      {"host patterns", patterns, [](int n) { return fmt::format("a.tenant{}.shop.test", n / 2); }, items},
      {"one endpoint", one_endpoint, shop, [](int n) { return fmt::format("/v1/resource{}/a/parts/b", n / 2 / 2 * 2); }},
      {"own ports", own_ports, shop, items},
      {"own programs", own_binaries, shop, items},
      {"program patterns", program_patterns, shop, items},
      {"one program", own_paths, shop, [](int n) { return fmt::format("/v1/resource{}/a", n / 2); }},
  };
}

double nanoseconds(Clock::duration spent) {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count());
}

// Median of `samples` timings of 64 calls each, in nanoseconds a call: the clock itself costs as much as a decision.
template <class Call>
double median_of(int samples, Call&& call) {
  constexpr int kCalls = 64;
  std::vector<double> out;
  for (int i = 0; i < samples; ++i) {
    const auto begin = Clock::now();
    for (int k = 0; k < kCalls; ++k) call();
    out.push_back(nanoseconds(Clock::now() - begin) / kCalls);
  }
  std::nth_element(out.begin(), out.begin() + samples / 2, out.end());
  return out[static_cast<std::size_t>(samples) / 2];
}

double milliseconds_of(int runs, const std::function<void()>& call) {
  std::vector<double> out;
  for (int i = 0; i < runs; ++i) {
    const auto begin = Clock::now();
    call();
    out.push_back(nanoseconds(Clock::now() - begin) / 1e6);
  }
  std::nth_element(out.begin(), out.begin() + runs / 2, out.end());
  return out[static_cast<std::size_t>(runs) / 2];
}

// Decisions of one shape and size. False: a decision was not the expected one, so the figures mean nothing.
bool decisions(const Shape& shape, int rules, int samples) {
  auto source = shape.make(rules);
  source.set_version(1);
  policy::normalize(source, policy::Provenance::clear);
  const auto matcher = policy::Matcher::compile(source);
  if (!matcher.ok()) return false;
  const std::string host = shape.host(rules), path = shape.path(rules);
  const std::vector<std::string> ancestors{"/usr/bin/bash", "/usr/bin/node", "/usr/bin/agent"};
  const policy::Destination destination{host, 443, {"/usr/bin/curl", ancestors, {}}};
  const policy::Destination nowhere{"no.such.test", 443, {"/usr/bin/curl", ancestors, {}}};
  const auto connection = (*matcher)->connect(destination);
  if (!connection.allowed || connection.request({"GET", path, {}}).verdict != policy::Verdict::allow) return false;
  const double l4 = median_of(samples, [&] { sink = sink + ((*matcher)->connect(destination).allowed ? 1U : 0U); });
  const double denied = median_of(samples, [&] { sink = sink + ((*matcher)->connect(nowhere).allowed ? 1U : 0U); });
  const double rest = median_of(samples, [&] { sink = sink + (connection.request({"GET", path, {}}).forwards() ? 1U : 0U); });
  const double refused = median_of(samples, [&] { sink = sink + (connection.request({"DELETE", path, {}}).forwards() ? 1U : 0U); });
  fmt::print(
      R"({{"what":"decisions","shape":"{}","rules":{},"l4_ns":{:.0f},"l4_denied_ns":{:.0f},"rest_ns":{:.0f},"rest_denied_ns":{:.0f}}})"
      "\n",
      shape.name, rules, l4, denied, rest, refused);
  return true;
}

bool building(int rules, int runs) {
  auto source = own_hosts(rules);
  source.set_version(1);
  const auto bytes = source.SerializeAsString();
  policy::normalize(source, policy::Provenance::clear);
  bool good = true;
  const double compile = milliseconds_of(runs, [&] { good = policy::Matcher::compile(source).ok() && good; });
  // The whole way of a supervisor: bytes, checks, canonical form, ambiguity, hash, tables.
  const double whole = milliseconds_of(runs, [&] {
    pb::SandboxPolicy parsed;
    good = parsed.ParseFromString(bytes) && policy::admit(parsed, policy::Provenance::keep).ok() && good;
    sink = sink + policy::policy_hash(parsed).str().size();
    good = policy::Matcher::compile(parsed).ok() && good;
  });
  fmt::print(R"({{"what":"building","rules":{},"bytes":{},"compile_ms":{:.2f},"whole_ms":{:.2f}}})"
             "\n",
             rules, bytes.size(), compile, whole);
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view{argv[1]} == "--quick";
  const std::vector<int> sizes = quick ? std::vector<int>{10, 1'000} : std::vector<int>{10, 100, 1'000, 10'000};
  bool good = true;
  for (const auto& shape : shapes()) {
    for (const int rules : sizes) good = decisions(shape, rules, quick ? 101 : 2'001) && good;
  }
  for (const int rules : sizes) good = building(rules, quick ? 1 : 5) && good;
  if (!good) fmt::print(stderr, "a policy or decision was not as expected\n");
  return good ? 0 : 1;
}
